# One image for Airflow, Spark and the S3 server, so that Python, Spark and jars match to the version.
# Set-up is the project's own: pinned packages with hashes, jars with checked sums.
FROM python:3.11-slim-bookworm

SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home landfall \
    && install -d -o landfall -g landfall /opt/landfall

USER 1000
WORKDIR /opt/landfall
ENV LANDFALL_HOME=/opt/landfall/.landfall
COPY --chown=landfall:landfall requirements.lock ./
COPY --chown=landfall:landfall bin bin
COPY --chown=landfall:landfall spark_jobs/jars.sha256 spark_jobs/
# What set-up wrote of Airflow goes: its configuration holds keys, and they would be in every copy of the image.
# The folders are those of the volumes, which take their owner from them.
RUN bin/setup \
    && rm -rf .landfall/airflow .landfall/cache .landfall/logs \
    && mkdir -p .landfall/airflow .landfall/warehouse .landfall/spark-events .landfall/stack/s3
COPY --chown=landfall:landfall dags dags
COPY --chown=landfall:landfall plugins plugins
COPY --chown=landfall:landfall spark_jobs spark_jobs

# A health check does not pass through the entry point.
ENV PATH=/opt/landfall/.landfall/venv/bin:$PATH \
    PYTHONPATH=/opt/landfall/plugins \
    PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["/opt/landfall/bin/with-env"]
CMD ["bash"]
