"""Translates the settings of Java's clients to librdkafka's, so that existing files can be used.

    sasl.jaas.config with Plain- or ScramLoginModule    sasl.username, sasl.password
    ssl.truststore.*, ssl.keystore.* that hold PEM      ssl.ca.*, ssl.certificate.*, ssl.key.*
    ssl.keystore.* of type PKCS12                       unchanged
    serializers, schema registry, reporters             ignored: nothing here reads them

A Java keystore is an error, because librdkafka cannot read it. All other settings are passed on unchanged.
"""

import re
from collections.abc import Mapping
from pathlib import PurePath

from eddy.errors import ConfigurationError

__all__ = ["is_left_out", "translated"]

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_LEFT_OUT = re.compile(
    r"(key|value)\.(de)?serializer|schema\.registry\..*|basic\.auth\..*|metric\.reporters|interceptor\.classes"
    r"|ssl\.(protocol|enabled\.protocols|provider|keymanager\.algorithm|trustmanager\.algorithm)"
)
_JAAS = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*", re.DOTALL | re.IGNORECASE)
_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL)
_WITH_PASSWORD = ("PlainLoginModule", "ScramLoginModule")


def is_left_out(key: str) -> bool:
    """Whether a setting matters to Java's clients only."""
    return _LEFT_OUT.fullmatch(key) is not None


def translated(settings: Mapping[str, str], origins: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with librdkafka's names. Raises: ConfigurationError for a setting without equivalent."""
    found = {_RENAMED.get(key, key): value for key, value in settings.items() if not is_left_out(key)}
    if (jaas := found.pop("sasl.jaas.config", None)) is not None:
        found = _login(jaas, origins.get("sasl.jaas.config", "settings")) | found
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    _trust(found, origins)
    _identity(found, origins)
    return found


def _login(jaas: str, origin: str) -> dict[str, str]:
    """Return librdkafka's settings for the user and the password in a JAAS entry."""
    entry = _JAAS.fullmatch(jaas)
    if entry is None or not entry[1].endswith(_WITH_PASSWORD):
        module = entry[1].rpartition(".")[2] if entry else "no login module"
        raise ConfigurationError(
            f"{origin}: sasl.jaas.config has {module}; {' or '.join(_WITH_PASSWORD)} can be translated. For others set "
            "librdkafka's names instead: sasl.kerberos.…, or sasl.oauthbearer.method=oidc and sasl.oauthbearer.…"
        )
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single or bare)
        for name, double, single, bare in _OPTION.findall(entry[2])
    }
    if not {"username", "password"} <= options.keys():
        raise ConfigurationError(
            f"{origin}: sasl.jaas.config has no username and password; {entry[1].rpartition('.')[2]} needs both. "
            'Write: username="…" password="…";'
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _kind(settings: dict[str, str], store: str) -> str:
    """Return the format of a keystore or truststore, PEM, PKCS12 or JKS, by its type or else by its suffix."""
    suffix = PurePath(settings.get(f"{store}.location", "")).suffix.lower()
    known = {".pem": "PEM", ".crt": "PEM", ".cer": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}
    return (settings.pop(f"{store}.type", "") or known.get(suffix, "JKS")).upper()


def _trust(settings: dict[str, str], origins: Mapping[str, str]) -> None:
    store = "ssl.truststore"
    kind = _kind(settings, store)
    settings.pop(f"{store}.password", None)
    location = settings.pop(f"{store}.location", None)
    if location is not None and kind != "PEM":
        raise ConfigurationError(
            f"{origins.get(f'{store}.location', 'settings')}: {store}.location is a Java keystore ({kind}); a PEM file "
            "is needed. Set ssl.ca.location=ca.pem, made by: keytool -exportcert -rfc -keystore FILE -alias NAME "
            "-file ca.pem"
        )
    if location is not None:
        settings.setdefault("ssl.ca.location", location)


def _identity(settings: dict[str, str], origins: Mapping[str, str]) -> None:
    store = "ssl.keystore"
    kind, location = _kind(settings, store), settings.get(f"{store}.location")
    if location is None or kind == "PKCS12":
        return
    if kind != "PEM":
        raise ConfigurationError(
            f"{origins.get(f'{store}.location', 'settings')}: {store}.location is a Java keystore ({kind}); PEM or "
            "PKCS12 is needed. Set ssl.certificate.location=cert.pem and ssl.key.location=key.pem, or convert it: "
            "keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12"
        )
    del settings[f"{store}.location"]
    settings.pop(f"{store}.password", None)
    settings.setdefault("ssl.certificate.location", location)
    settings.setdefault("ssl.key.location", location)
