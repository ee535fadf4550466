"""The patterns of LIKE, in SQL and in live queries, as regular expressions."""

import re

__all__ = ["like_pattern"]


def like_pattern(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """Return the regular expression of a LIKE pattern, for `fullmatch`.

    A match takes at most time proportional to the length of the pattern times the length of the text.

    >>> bool(like_pattern("50\\\\%%").fullmatch("50% off")), bool(like_pattern("a_c").fullmatch("ac"))
    (True, False)
    """
    texts = [""]
    for found in re.finditer(r"\\(.)|(%)|(_)|(.)", pattern, re.DOTALL):
        escaped, many, one, plain = found.groups()
        if many:
            texts.append("")
        else:
            texts[-1] += "." if one else re.escape(escaped or plain)
    whole = texts[0]
    if len(texts) > 1:  # Match each text between two % at its first occurrence: no other place has to be tried.
        whole += "".join(f"(?>.*?{text})" for text in texts[1:-1] if text) + ".*" + texts[-1]
    return re.compile(whole, re.DOTALL | (re.IGNORECASE if ignore_case else 0))
