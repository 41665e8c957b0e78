"""The tasks of a Landfall DAG: small subclasses of the providers' own operators."""

from __future__ import annotations

import json
import re
import tempfile
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowSensorTimeout, AirflowSkipException

from landfall.dataset import Dataset
from landfall.errors import ContractError, ManifestError, TransientError, from_json
from landfall.listing import Listing, list_source, split_uri
from landfall.manifest import Deduplicate, Manifest, StageSpec, files_to_json
from landfall.outcome import ending, warehouse_of
from landfall.partition import Partition
from landfall.readiness import not_ready
from landfall.reading import Reading, plan_reading, read_known, refuse_range
from landfall.s3 import S3Store
from landfall.s3_access import SOURCE_ENV, STAGE_ENV
from landfall.settings import load_settings
from landfall.stage import attempt_time, read_stage_object, write_stage_object
from landfall.templates import Templates, refused_conf

if TYPE_CHECKING:
    from airflow.sdk import Context

_ERROR_LINE = re.compile(r"landfall-error: (\{.*\})")
# What the Spark job imports of the library; it needs nothing but the standard library and pyspark.
_TRAVELS = ("errors", "listing", "manifest", "partition", "s3_access", "watermark")


def list_landing(dataset: Dataset, partition: Templates) -> Listing:
    """The partition's files as they stand in the landing now."""
    from landfall.connections import s3_client

    source = dataset.source
    bucket, _ = split_uri(source.uri)
    client = s3_client(source.connection, source.region)
    store = S3Store(client, bucket, connection=source.connection)
    return list_source(store, source.uri, Partition.of(partition, source.types), source.files)


class WaitForPartition(S3KeySensor):
    """Waits until the partition is ready; lists its own folders only, never the history."""

    template_fields = ("partition",)

    def __init__(self, *, dataset: Dataset, partition: Templates, **kwargs: Any) -> None:
        ready = dataset.source.ready
        super().__init__(
            bucket_key=dataset.source.uri,
            aws_conn_id=dataset.source.connection,
            mode="reschedule",
            deferrable=ready.deferrable,
            poke_interval=ready.poke_seconds,
            timeout=ready.timeout_minutes * 60,
            **kwargs,
        )
        self.dataset = dataset
        self.partition = partition

    def render_template_fields(self, context: Context, jinja_env: Any = None) -> None:
        """A conf that names no partition of this dataset ends the run here, and not at a retry."""
        from jinja2 import UndefinedError

        with ending(self.dataset, self.dataset.source.partition, context):
            try:
                super().render_template_fields(context, jinja_env)
            except UndefinedError as error:
                raise refused_conf(
                    f"the run has no logical date, and {error}.", self.dataset.source.partition
                ) from error

    def execute(self, context: Context) -> None:
        with ending(self.dataset, self.partition, context):
            if self.deferrable:
                self._poke_or_defer(context)
                return
            try:
                BaseSensorOperator.execute(self, context)
            except AirflowSensorTimeout:
                self._give_up()

    def poke(self, context: Context) -> bool:  # noqa: ARG002 - the sensor's own signature
        self._listing = list_landing(self.dataset, self.partition)
        self._missing = not_ready(self._listing, self.dataset.source.ready, datetime.now(UTC))
        if self._missing:
            self.log.info("Not ready: %s", self._missing)
            return False
        self.log.info("Ready: %d files, %d bytes", len(self._listing.files), self._listing.bytes)
        return True

    def _poke_or_defer(self, context: Context) -> None:
        from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger

        if self.poke(context):
            return
        # A deferral keeps the start of the task.
        if datetime.now(UTC) - context["ti"].start_date > timedelta(seconds=self.timeout):
            self._give_up()
        self.defer(
            trigger=TimeDeltaTrigger(timedelta(seconds=self.poke_interval)),
            method_name="look_again",
        )

    def look_again(self, context: Context, **_: Any) -> None:
        with ending(self.dataset, self.partition, context):
            self._poke_or_defer(context)

    def _give_up(self) -> None:
        waited = f"{self.dataset.source.ready.timeout_minutes:g} minutes"
        if not self._listing.files:
            raise AirflowSkipException(f"Nothing landed within {waited}; the table is untouched.")
        raise ContractError(
            f"after {waited} the partition is not ready: {self._missing}.",
            where=self.dataset.source.uri,
            fix="complete the landing and clear the run, or relax source.ready.",
        )


class _StageHook(SparkSubmitHook):
    """Hands credentials to spark-submit by its environment alone, and hears what the job says."""

    said: dict[str, Any] | None = None

    def give(self, secrets: dict[str, str]) -> None:
        # `env_vars` would do on a local master; on YARN and Kubernetes the provider turns them
        # into --conf arguments, which the process list shows.
        self._env = {**(self._env or {}), **secrets}

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._listen(itr))

    def _listen(self, lines: Iterator[Any]) -> Iterator[Any]:
        for line in lines:
            if match := _ERROR_LINE.search(line):
                self.said = json.loads(match.group(1))
            yield line


class StagePartition(SparkSubmitOperator):
    """Runs the Spark job under a fresh attempt; succeeds only if a manifest was published."""

    template_fields = (*SparkSubmitOperator.template_fields, "partition")

    def __init__(self, *, dataset: Dataset, partition: Templates, **kwargs: Any) -> None:
        settings = load_settings()
        spark = dataset.spark
        super().__init__(
            application=str(settings.spark_job),
            conn_id=spark.connection,
            name=f"landfall-{dataset.dataset}",
            conf=dict(spark.conf),
            driver_memory=spark.driver_memory,
            executor_memory=spark.executor_memory,
            executor_cores=spark.executor_cores,
            num_executors=spark.num_executors,
            durable=False,  # a cleared task really submits again
            **kwargs,
        )
        self.dataset = dataset
        self.partition = partition

    def execute(self, context: Context) -> str:  # type: ignore[override]
        with ending(self.dataset, self.partition, context):
            spec = self._spec(context)
            conf = getattr(context.get("dag_run"), "conf", None)
            if self.dataset.upsert is None:
                refuse_range(conf)
            else:
                reading = self._reading(conf)
                if not reading.files:
                    return self._publish_nothing(spec, reading)
                part = reading.spec_part(self.dataset, spec.files_uri)
                write_stage_object(self.dataset, spec.files_uri, files_to_json(reading.files))
                spec = replace(spec, upsert=part)
            settings = load_settings()
            self.application_args = [spec.to_json()]
            jars = sorted(settings.jars_dir.glob("*.jar"))
            self.jars = ",".join(map(str, jars)) or None
            with tempfile.TemporaryDirectory(prefix="landfall-") as folder:
                self.py_files = str(_library_zip(Path(folder)))
                self._submit(context)
            return self._published(spec)

    def _spec(self, context: Context) -> StageSpec:
        dataset, transform = self.dataset, self.dataset.transform
        partition = Partition.of(self.partition, dataset.source.types)
        moment = attempt_time(datetime.now(UTC))
        wanted = transform.deduplicate
        return StageSpec(
            dataset=dataset.dataset,
            source_uri=dataset.source.uri,
            files=dataset.source.files,
            partition=partition,
            stage_uri=f"{dataset.stage_uri(load_settings().stage_uri)}/{partition.label}",
            attempt=f"{moment}-{uuid.uuid4().hex[:8]}",
            dag_run_id=context["run_id"],
            config_hash=dataset.config_hash,
            filter=transform.filter,
            select=transform.select,
            deduplicate=Deduplicate(tuple(wanted.key), wanted.latest_by) if wanted else None,
            target_file_bytes=dataset.spark.target_file_mb * 1024 * 1024,
        )

    def _reading(self, conf: Mapping[str, Any] | None) -> Reading:
        """What this run opens: the watermark is read first, so that no file can slip between."""
        dataset = self.dataset
        assert dataset.upsert is not None
        partition = Partition.of(self.partition, dataset.source.types)
        known = read_known(warehouse_of(dataset), dataset, partition)
        now = datetime.now(UTC)
        listing = list_landing(dataset, self.partition)
        reading = plan_reading(dataset.upsert, known, listing, conf, now)
        self.log.info(
            "Watermark %s; reads from %s until %s%s; opens %d of %d files",
            *(reading.watermark, reading.late_before or reading.start, reading.until),
            " (replay)" if reading.replay else "",
            *(len(reading.files), reading.listed),
        )
        return reading

    def _publish_nothing(self, spec: StageSpec, reading: Reading) -> str:
        """A manifest without a row: the load then says in the ledger that there was nothing."""
        self.log.info("No file is new since the last load: no Spark job is submitted")
        manifest = Manifest(
            dataset=spec.dataset,
            partition=spec.partition,
            dag_run_id=spec.dag_run_id,
            attempt=spec.attempt,
            staged_at=reading.staged_at.isoformat(timespec="microseconds"),
            source_uri=spec.source_uri,
            sources=(),
            staged=(),
            rows_read=0,
            rows_filtered=0,
            rows_deduplicated=0,
            rows_rejected=0,
            rows_staged=0,
            columns=(),
            config_hash=spec.config_hash,
            committer="none",
            upsert=reading.nothing(self.dataset),
        )
        write_stage_object(self.dataset, spec.manifest_uri, manifest.to_json())
        return spec.manifest_uri

    def _submit(self, context: Context) -> None:
        from airflow.sdk.log import mask_secret

        from landfall.connections import require_connection, s3_access

        require_connection(self.dataset.spark.connection, "spark")  # missing means YARN, silently
        source = s3_access(self.dataset.source.connection, self.dataset.source.region)
        stage = s3_access(self.dataset.stage.connection, self.dataset.source.region)
        for secret in (*source.secrets, *stage.secrets):
            mask_secret(secret)
        plain = self._get_hook()
        hook = self._hook = _StageHook.__new__(_StageHook)
        hook.__dict__.update(plain.__dict__)
        hook.give({SOURCE_ENV: source.to_json(), STAGE_ENV: stage.to_json()})
        try:
            super().execute(context)
        except AirflowException as error:
            if hook.said is not None:
                raise from_json(hook.said) from None
            raise TransientError(
                "spark-submit failed without a word from the job.",
                where=f"Spark connection {self.dataset.spark.connection!r}",
                fix="read the log above; `bin/landfall doctor` checks Java, jars and cluster.",
            ) from error

    def _published(self, spec: StageSpec) -> str:
        """Spark's success is not proof: what counts is the manifest."""
        if read_stage_object(self.dataset, spec.manifest_uri) is None:
            raise ManifestError(
                "spark-submit ended well, but no manifest was published.",
                where=spec.attempt_uri,
                fix="read this task's log, then clear stage_partition.",
            )
        return spec.manifest_uri


def _library_zip(folder: Path) -> Path:
    """The part of the library that the job imports, so that a cluster needs no Airflow."""
    package = Path(__file__).parent
    target = folder / "landfall.zip"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("landfall/__init__.py", "")
        for name in _TRAVELS:
            archive.write(package / f"{name}.py", f"landfall/{name}.py")
        for module in sorted((package / "spark").glob("*.py")):
            archive.write(module, f"landfall/spark/{module.name}")
    return target
