"""Settings of a connection: what is read, what is refused and why, and that no text of them shows a secret."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.connectors.kafka.settings import KafkaSettings, shown
from eddy.errors import ConfigurationError

HERE = "localhost:9092"
SECRET = "hunter2"


def pairs(*given: str) -> KafkaSettings:
    return KafkaSettings.of(HERE, pairs=given, environ={"PASSWORD": SECRET})


def refusal(*given: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        pairs(*given)
    return str(caught.value)


class TestFile:
    def read(self, folder: Path, text: str) -> dict[str, str]:
        path = folder / "client.properties"
        path.write_text(text, encoding="utf-8")
        return dict(KafkaSettings.of(files=[path], environ={"PASSWORD": SECRET}).shared)

    def test_properties_are_read_as_java_reads_them(self, tmp_path: Path) -> None:
        text = (
            "# a comment, that does not go on \\\n"
            "  ! another one\n\n"
            "bootstrap.servers = localhost:9092,\\\n"
            "      localhost:9093\n"
            "security.protocol:SASL_SSL\n"
            "sasl.mechanism   SCRAM-SHA-512\n"
            "sasl.username=a=b:c # d\n"
            "sasl.password=back\\\\slash \\u00e9\\t\n"
            "ssl.endpoint.identification.algorithm=\n"
            "ssl.ca.location=/etc/ca.pem\\"
        )
        assert self.read(tmp_path, text) == {
            "bootstrap.servers": "localhost:9092,localhost:9093",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "a=b:c # d",
            "sasl.password": "back\\slash é\t",
            "ssl.endpoint.identification.algorithm": "none",
            "ssl.ca.location": "/etc/ca.pem",
        }

    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="$"), min_size=1))
    def test_any_value_comes_through_its_escapes(self, tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
        escaped = "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in value)
        text = f"bootstrap.servers={HERE}\nsasl.username={escaped}\n"
        assert self.read(tmp_path_factory.mktemp("settings"), text)["sasl.username"] == value

    def test_references_are_resolved_once(self, tmp_path: Path) -> None:
        (tmp_path / "password").write_text("${env:PASSWORD}\n")
        text = (
            f"bootstrap.servers={HERE}\nsasl.username=u-${{env:PASSWORD}}!\nsasl.password=${{file:{tmp_path}/password}}"
        )
        read = self.read(tmp_path, text)
        assert (read["sasl.username"], read["sasl.password"]) == (f"u-{SECRET}!", "${env:PASSWORD}")

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ("sasl.password=x${env:GONE}", "sasl.password refers to ${env:GONE}: this environment variable is not set"),
            ("sasl.password=x${file:gone}", "refers to ${file:gone}: this file cannot be read (No such file"),
            ("sasl.password=x${vault:hunter2}", "refers to ${vault:…}: eddy knows no such reference"),
            ("hunter2", "it is not a setting; NAME=VALUE is needed"),
            ("=hunter2", "it is not a setting; NAME=VALUE is needed"),
        ],
    )
    def test_what_cannot_be_read_is_named_without_its_value(self, tmp_path: Path, line: str, said: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            self.read(tmp_path, f"\n{line}\n")
        told = str(caught.value)
        assert "client.properties line 2: " in told
        assert said in told
        assert "hunter2" not in told

    def test_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"gone\.properties: cannot be read \(No such file"):
            KafkaSettings.of(HERE, files=[tmp_path / "gone.properties"])

    def test_what_comes_later_wins(self, tmp_path: Path) -> None:
        first, second = tmp_path / "1", tmp_path / "2"
        first.write_text("bootstrap.servers=one:1\nclient.id=1\nclient.rack=1\nlinger.ms=1\n")
        second.write_text("client.id=2\nclient.rack=2\n")
        settings = KafkaSettings.of(HERE, [first, second], ["client.id=3"])
        assert settings.shared == {
            "bootstrap.servers": HERE, "client.id": "3", "client.rack": "2", "linger.ms": "1"
        }  # fmt: skip


class TestClients:
    def test_each_client_gets_what_it_knows(self) -> None:
        settings = pairs(
            "client.id=all",
            "producer.client.id=writer",
            "linger.ms=7",
            "fetch.min.bytes=9",
            "admin.socket.timeout.ms=5",
            "topic.metadata.refresh.interval.ms=1000",
        )
        common = {"bootstrap.servers": HERE, "topic.metadata.refresh.interval.ms": "1000"}
        assert settings.for_producer() == common | {"client.id": "writer", "linger.ms": "7"}
        assert settings.for_consumer() == common | {"client.id": "all", "fetch.min.bytes": "9"}
        assert settings.for_admin() == common | {"client.id": "all", "socket.timeout.ms": "5"}

    def test_clients_take_them(self) -> None:
        import confluent_kafka
        from confluent_kafka.admin import AdminClient

        settings = pairs(
            "linger.ms=7", "acks=all", "fetch.max.wait.ms=9", "max.request.size=2000000", "sasl.mechanism=PLAIN"
        )
        AdminClient(settings.for_admin())
        confluent_kafka.Producer(settings.for_producer())
        confluent_kafka.Consumer(settings.for_consumer() | {"group.id": "g"}).close()

    def test_topics_that_eddy_makes_have_settings_of_their_own(self) -> None:
        settings = pairs("topic.min.insync.replicas=2", "replication.factor=3")
        assert (settings.topic_configs, settings.replication_factor) == ({"min.insync.replicas": "2"}, 3)
        assert (pairs().topic_configs, pairs().replication_factor) == ({}, -1)
        assert "replication.factor=many; a number" in refusal("replication.factor=many")


class TestRefused:
    @pytest.mark.parametrize(
        ("pair", "said"),
        [
            ("group.id=g", "--set: group.id cannot be set; the group is the application's name"),
            ("consumer.group.id=g", "--set: consumer.group.id cannot be set"),
            ("producer.transactional.id=t", "Name the member: --member NAME"),
            ("group.instance.id=t", "Name the member: --member NAME"),
            ("enable.auto.commit=true", "positions are committed in one transaction with the outputs"),
            ("enable.auto.offset.store=true", "positions are committed in one transaction with the outputs"),
            ("isolation.level=read_uncommitted", "open and aborted transactions are never read"),
            ("auto.offset.reset=latest", "a new application begins at the first record"),
            ("partition.assignment.strategy=roundrobin", "partition i of every topic"),
            ("partitioner=random", "that Kafka's Java producers choose"),
            ("enable.idempotence=false", "transactions need it"),
            ("enable.sasl.oauthbearer.unsecure.jwt=true", "prove nothing"),
            (
                "topic.cleanup.policy=delete",
                "topic.cleanup.policy cannot be set; it follows from the purpose of a topic",
            ),
            ("topic.retention.ms=1", "never by age"),
        ],
    )
    def test_what_eddy_decides_is_refused_with_the_reason(self, pair: str, said: str) -> None:
        assert said in refusal(pair)

    @pytest.mark.parametrize("pair", ["hunter2", "=hunter2", "a b=hunter2"])
    def test_what_is_no_setting_is_not_shown(self, pair: str) -> None:
        assert refusal("client.id=a", pair) == "--set: number 2 is not a setting; KEY=VALUE is needed"

    @pytest.mark.parametrize("servers", ["", "localhost", "a:b", "a:1,,b:2", "a:99999", "user:hunter2@a:1", "a:1;b:2"])
    def test_servers_are_hosts_and_ports(self, servers: str) -> None:
        with pytest.raises(ConfigurationError, match="servers as HOST:PORT are needed") as caught:
            KafkaSettings.of(servers)
        assert "hunter2" not in str(caught.value)
        with pytest.raises(ConfigurationError, match="servers as HOST:PORT are needed"):
            KafkaSettings.of()


class TestJava:
    @pytest.mark.parametrize(
        "entry",
        [
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="a \\"b\\" c";',
            "org.apache.kafka.common.security.scram.ScramLoginModule required\n  password='a \"b\" c'  username=ann ;",
        ],
    )
    def test_login_of_a_file_for_java_is_understood(self, entry: str) -> None:
        shared = pairs(f"sasl.jaas.config={entry}", "sasl.mechanisms=PLAIN").shared
        assert "sasl.jaas.config" not in shared
        assert (shared["sasl.username"], shared["sasl.password"]) == ("ann", 'a "b" c')
        assert shared["sasl.mechanism"] == "PLAIN"

    def test_login_of_one_client_alone(self) -> None:
        entry = 'PlainLoginModule required username="u" password="p";'
        own = pairs(f"admin.sasl.jaas.config={entry}").own
        assert own["admin"] == {"sasl.username": "u", "sasl.password": "p"}

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ("com.sun.security.auth.module.Krb5LoginModule required keyTab=hunter2;", "has Krb5LoginModule; Plain"),
            ("hunter2", "has no login module; Plain"),
            ("a.PlainLoginModule required password=hunter2;", "has no username and password"),
        ],
    )
    def test_login_without_an_equivalent_is_told(self, entry: str, said: str) -> None:
        told = refusal(f"sasl.jaas.config={entry}")
        assert said in told
        assert SECRET not in told

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (["ssl.truststore.location=t.jks", "ssl.truststore.password=hunter2"], "Set ssl.ca.location=ca.pem"),
            (["ssl.truststore.location=t.p12"], "is a Java keystore (PKCS12); a PEM file is needed"),
            (["ssl.keystore.location=k.jks"], "Set ssl.certificate.location=cert.pem and ssl.key.location=key.pem"),
            (["ssl.keystore.location=k.pem", "ssl.keystore.type=jks"], "is a Java keystore (JKS)"),
        ],
    )
    def test_java_keystores_are_told_from_pem(self, given: list[str], said: str) -> None:
        told = refusal(*given)
        assert said in told
        assert SECRET not in told

    def test_stores_that_hold_pem_have_names_of_their_own(self) -> None:
        stores = ["ssl.truststore.location=ca.pem", "ssl.keystore.location=me", "ssl.keystore.type=PEM"]
        shared = pairs(*stores, "ssl.key.password=p").shared
        assert {key: value for key, value in shared.items() if key.startswith("ssl.")} == {
            "ssl.ca.location": "ca.pem",
            "ssl.certificate.location": "me",
            "ssl.key.location": "me",
            "ssl.key.password": "p",
        }
        kept = {"ssl.keystore.location": "k.p12", "ssl.keystore.password": "p"}
        assert pairs(*(f"{key}={value}" for key, value in kept.items())).shared.items() >= kept.items()

    def test_what_only_java_reads_is_left_out_and_said(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        shared = pairs("key.deserializer=x", "schema.registry.url=http://u:p@h", "acks=all").shared
        assert shared == {"bootstrap.servers": HERE, "acks": "all"}
        assert "left out: key.deserializer, schema.registry.url" in caplog.text


class TestSecrets:
    KEYS = (
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "some.token",
        "some.credential",
        "consumer.sasl.password",
    )

    def test_no_text_of_settings_shows_one(self) -> None:
        given = [f"{key}=${{env:PASSWORD}}" for key in self.KEYS if key != "ssl.keystore.location"]
        settings = pairs(
            *given, "ssl.keystore.location=k.p12", "sasl.oauthbearer.token.endpoint.url=https://u:hunter2@h/"
        )
        for text in (repr(settings), str(settings), f"{settings}", f"{settings!r}"):
            assert SECRET not in text
            assert "sasl.password=***" in text
            assert "bootstrap.servers=localhost:9092" in text
        assert settings.for_producer()["sasl.password"] == SECRET
        assert settings.for_consumer()["sasl.password"] == SECRET

    def test_urls_lose_their_user(self) -> None:
        given = {"https.proxy": "https://u:hunter2@host:1/x", "sasl.jaas.config": "x", "client.id": "me"}
        assert shown(given) == {"https.proxy": "https://***@host:1/x", "sasl.jaas.config": "***", "client.id": "me"}

    @pytest.mark.parametrize(
        ("servers", "protocol", "warned"),
        [
            ("localhost:1,127.0.0.1:2,[::1]:3", None, False),
            ("localhost:1,kafka:2", None, True),
            ("kafka:2", "SASL_PLAINTEXT", True),
            ("kafka:2", "sasl_ssl", False),
            ("kafka:2", "SSL", False),
        ],
    )
    def test_plain_text_to_another_host_is_warned_of(
        self, servers: str, protocol: str | None, warned: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        KafkaSettings.of(servers, pairs=[f"security.protocol={protocol}"] if protocol else [])
        assert ("connections to kafka are not encrypted: security.protocol=" in caplog.text) is warned
