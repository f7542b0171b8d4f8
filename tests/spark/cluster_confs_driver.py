"""What Spark makes of the conf files for YARN and Kubernetes.

    python -m tests.spark.cluster_confs_driver CONF_FILE

It prints, as JSON, the properties that Spark does not know, the memory of a container
in MiB and, if the file names a template, the pod of an executor.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

_REGISTRIES = (
    "org.apache.spark.internal.config.package$",
    "org.apache.spark.internal.config.Python$",
    "org.apache.spark.deploy.yarn.config.package$",
    "org.apache.spark.deploy.k8s.Config$",
)
"""Objects that register properties of Spark when they are loaded."""

_LEAST_OVERHEAD_MIB, _OVERHEAD_FACTOR = 384, 0.1
_TEMPLATE = "spark.kubernetes.executor.podTemplateFile"


def properties_of(path: Path) -> dict[str, str]:
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line.split(None, 1) for line in lines if line and line[0] != "#")
    return {key: value for key, value in pairs}  # noqa: C416 - dict() knows no lists


def main(file: str) -> None:
    properties = properties_of(Path(file))
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    for key, value in properties.items():
        builder = builder.config(key, value)
    # Its resource profile, which the containers are for, is that of these properties.
    builder = builder.config("spark.submit.deployMode", "client")
    spark = builder.master("local[1]").getOrCreate()
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in _REGISTRIES:
        jvm.java.lang.Class.forName(name, True, loader)
    find = jvm.org.apache.spark.internal.config.ConfigEntry.findEntry
    found = {
        "unknown": [key for key in properties if find(key) is None],
        "memory_mib": _memory_mib(spark, jvm),
        "pod": _pod(spark, jvm) if _TEMPLATE in properties else None,
    }
    spark.stop()
    print(json.dumps(found))


def _memory_mib(spark: SparkSession, jvm: Any) -> int:
    context = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    profiles = getattr(jvm.org.apache.spark.resource, "ResourceProfile$")
    resources = getattr(profiles, "MODULE$").getResourcesForClusterManager(
        profile.id(),
        profile.executorResources(),
        _LEAST_OVERHEAD_MIB,
        _OVERHEAD_FACTOR,
        context.conf(),
        True,
        jvm.scala.Predef.Map().empty(),
    )
    return int(resources.totalMemMiB())


def _pod(spark: SparkSession, jvm: Any) -> Any:
    context = spark.sparkContext._jsc.sc()
    conf = context.conf().clone().set("spark.kubernetes.resource.type", "python")
    none = jvm.scala.Option.empty()
    of_executor = jvm.org.apache.spark.deploy.k8s.KubernetesConf.createExecutorConf(
        conf, "1", "app", none, 0
    )
    kubernetes = jvm.io.fabric8.kubernetes.client
    client = kubernetes.KubernetesClientBuilder().build()
    try:
        built = jvm.org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder()
        built = built.buildFromFeatures(
            of_executor,
            jvm.org.apache.spark.SparkEnv.get().securityManager(),
            client,
            context.resourceProfileManager().defaultResourceProfile(),
        ).pod()
    finally:
        client.close()
    as_yaml = kubernetes.utils.Serialization.asYaml
    pod = yaml.safe_load(as_yaml(built.pod()))
    pod["spec"]["containers"] = [yaml.safe_load(as_yaml(built.container()))]
    return pod


if __name__ == "__main__":
    main(sys.argv[1])
