"""Apache Kafka in KRaft mode, one process on 127.0.0.1, from the jars of Maven Central and the Java that Spark runs on.

It is started and stopped by a test, and ends with it. Its data stays in the folder, so that it may be killed and
started again.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from benchmarks.java_packages import Packages
from floodmark.spark.launch.target import JAVA_VARIABLE, java_environment
from floodmark_laptop.processes import free_port
from sqlserver_emulator.server.certificate import provide_certificate

KAFKA = Packages("Kafka", "4.1.0", (("org.apache.kafka", "kafka_2.13", "4.1.0"),))
_SILENT = logging.getLogger("kafka_broker")
_SILENT.propagate = False
_SILENT.addHandler(logging.NullHandler())
_CLUSTER = "Zmxvb2RtYXJrLXRlc3RzLTE"
_MEMORY = ("-Xms32m", "-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_SECONDS = 90.0
_CALL_SECONDS = 30.0
_MESSAGE_BYTES = 1_048_588
_PROPERTIES = """
process.roles=broker,controller
node.id=1
log.dirs={folder}/data
listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secure_port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secure_port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.enable=false
message.max.bytes={message_bytes}
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server-chain.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config={login_module} required user_{user}="{password}";
"""
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER, PASSWORD = "policy", "a-Key+of/a=Policy"
"""The login of the listener with TLS."""


@dataclass
class KafkaBroker:
    """``folder`` has its settings, its data and its log."""

    folder: Path
    java: Path
    jars: Path
    port: int
    secure_port: int
    """Where it has TLS, and asks for a login."""
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def secure_servers(self) -> str:
        return f"127.0.0.1:{self.secure_port}"

    @property
    def ca_file(self) -> Path:
        """The authority of its certificate."""
        return self.folder / "tls" / "ca.pem"

    @property
    def settings(self) -> dict[str, str]:
        return {"bootstrap.servers": self.servers}

    def format(self, controller_port: int) -> None:
        made = provide_certificate(self.folder / "tls", "127.0.0.1")
        chain = self.folder / "server-chain.pem"
        chain.write_text(made.key_file.read_text() + made.certificate_file.read_text() + made.ca_file.read_text())
        settings = self.folder / "server.properties"
        text = _PROPERTIES.format(
            folder=self.folder,
            port=self.port,
            secure_port=self.secure_port,
            controller=controller_port,
            message_bytes=_MESSAGE_BYTES,
            login_module=_LOGIN_MODULE,
            user=USER,
            password=PASSWORD,
        )
        settings.write_text(text, encoding="utf-8")
        self._run_tool("kafka.tools.StorageTool", "format", "--standalone", "-t", _CLUSTER, "-c", str(settings))

    def start(self) -> None:
        """Start the broker, and return when it answers."""
        with (self.folder / "broker.log").open("ab") as log:
            command = [*self._command(), "kafka.Kafka", str(self.folder / "server.properties")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                Producer(self.settings, logger=_SILENT).list_topics(timeout=2)
            except KafkaException:
                assert self.process.poll() is None, (self.folder / "broker.log").read_text(errors="replace")[-2000:]
                assert time.monotonic() < deadline, "Kafka did not start in time"
            else:
                return

    def kill(self) -> None:
        """End the process as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def create_topic(self, name: str, partitions: int) -> None:
        self._admin("create_topics", [NewTopic(name, partitions, 1)])
        self._wait_for(lambda: len(self._partitions(name)) == partitions)

    def configure_topic(self, name: str, **settings: str) -> None:
        """Change settings of a topic; their names have underscores in place of dots."""
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ]
        self._admin(
            "incremental_alter_configs", [ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)]
        )

    def restrict_topic(self, name: str, user: str) -> None:
        """Let a login read a topic, and nothing more."""
        pattern = ResourcePatternType.LITERAL
        self._admin(
            "create_acls",
            [
                AclBinding(
                    ResourceType.TOPIC, name, pattern, f"User:{user}", "*", AclOperation.READ, AclPermissionType.ALLOW
                )
            ],
        )

    def delete_topic(self, name: str) -> None:
        self._admin("delete_topics", [name])
        self._wait_for(lambda: not self._partitions(name))

    def add_partitions(self, name: str, partitions: int) -> None:
        self._admin("create_partitions", [NewPartitions(name, partitions)])
        self._wait_for(lambda: len(self._partitions(name)) == partitions)

    def delete_records(self, name: str, partition: int, before: int) -> None:
        """Remove the messages of a partition below an offset, as retention does."""
        self._admin("delete_records", [TopicPartition(name, partition, before)])

    def send(self, topic: str, messages: Iterable[tuple[int, bytes]]) -> None:
        """Send messages, each to its partition, and return when the broker has them."""
        producer = Producer(self.settings | {"linger.ms": "0"}, logger=_SILENT)
        for partition, body in messages:
            producer.produce(topic, value=body, partition=partition)
        assert producer.flush(_CALL_SECONDS) == 0

    def send_in_transaction(self, topic: str, partition: int, bodies: Iterable[bytes]) -> None:
        """Send messages to a partition in one transaction."""
        settings = self.settings | {"transactional.id": "test"}
        producer = Producer(settings, logger=_SILENT)
        producer.init_transactions(_CALL_SECONDS)
        producer.begin_transaction()
        for body in bodies:
            producer.produce(topic, value=body, partition=partition)
        producer.commit_transaction(_CALL_SECONDS)
        # It waits until the end of the transaction is in the partition.
        Producer(settings, logger=_SILENT).init_transactions(_CALL_SECONDS)

    def _partitions(self, name: str) -> dict[int, object]:
        found = AdminClient(self.settings, logger=_SILENT).list_topics(name, timeout=_CALL_SECONDS).topics[name]
        assert found.error is None or found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, found.error
        return dict(found.partitions)

    def _admin(self, call: str, arguments: list[object]) -> None:
        client = AdminClient(self.settings, logger=_SILENT)  # it ends its calls when it is no longer referenced
        for outcome in getattr(client, call)(arguments).values():
            outcome.result(_CALL_SECONDS)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _CALL_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "the topic did not change in time"
            time.sleep(0.1)

    def _command(self) -> list[str]:
        return [str(self.java), *_MEMORY, "-cp", f"{self.jars}{os.sep}*"]

    def _run_tool(self, *arguments: str) -> None:
        done = subprocess.run(
            [*self._command(), *arguments], capture_output=True, text=True, timeout=_START_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def kafka_broker(folder: Path) -> Iterator[KafkaBroker]:
    """Start a broker in a folder. Raises MissingPackagesError where its jars cannot be fetched."""
    java = Path(java_environment()[JAVA_VARIABLE]) / "bin" / "java"
    jars = KAFKA.fetch(java)
    folder.mkdir(parents=True)
    broker = KafkaBroker(folder, java, jars, free_port(), free_port())
    broker.format(free_port())
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
