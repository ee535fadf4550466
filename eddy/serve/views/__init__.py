"""The view server: tables held whole, read at versions, in a program or over HTTP."""
