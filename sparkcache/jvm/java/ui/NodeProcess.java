package org.apache.spark.sparkcache;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkFiles;
import org.apache.spark.api.python.PythonUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The node's process, which the JVM of the executor starts before any task does: so it is there for
 * the first one, and the limits of Python workers are not its own. If that fails, the first task
 * starts the node.
 */
final class NodeProcess {
  private static final Logger LOG = LoggerFactory.getLogger(NodeProcess.class);
  private static final String SETTINGS = "spark.sparkcache.";
  private static final String ENVIRONMENT = "spark.executorEnv.";

  private NodeProcess() {}

  /** Starts the node, with the Python and the environment of Spark's Python workers. */
  static void start(Path executorDir, SparkConf conf, String python) {
    try {
      List<String> command = new ArrayList<>();
      command.addAll(List.of(conf.get("spark.pyspark.python", python), "-P", "-m"));
      command.addAll(List.of("sparkcache.node.early", executorDir.toString()));
      command.addAll(List.of(Long.toString(ProcessHandle.current().pid()), protocol()));
      for (Tuple2<String, String> setting : conf.getAllWithPrefix(SETTINGS)) {
        command.add(SETTINGS + setting._1() + "=" + setting._2());
      }
      ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
      prepare(builder.environment(), conf);
      Process starter = builder.start();
      starter.getOutputStream().close();
      String output = new String(starter.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      if (starter.waitFor() != 0) {
        LOG.debug("SparkCache: the first task starts the node: {}", output.strip());
      } else if (!output.isBlank()) {
        LOG.warn("SparkCache: {}", output.strip());
      }
    } catch (Throwable error) {
      LOG.debug("SparkCache: the first task starts the node: {}", error.toString());
    }
  }

  /** Sets the variables that Spark sets for Python workers. */
  private static void prepare(Map<String, String> environment, SparkConf conf) {
    List<String> paths = new ArrayList<>();
    paths.add(PythonUtils.sparkPythonPath());
    paths.add(conf.get(ENVIRONMENT + "PYTHONPATH", ""));
    paths.add(environment.getOrDefault("PYTHONPATH", ""));
    Path files = Path.of(SparkFiles.getRootDirectory()).toAbsolutePath().normalize();
    paths.add(files.toString());
    for (String file : conf.get("spark.submit.pyFiles", "").split(",")) {
      if (!file.isBlank()) {
        paths.add(files.resolve(new File(file.strip()).getName()).toString());
      }
    }
    environment.put("OMP_NUM_THREADS", conf.get("spark.task.cpus", "1"));
    for (Tuple2<String, String> variable : conf.getAllWithPrefix(ENVIRONMENT)) {
      environment.put(variable._1(), variable._2());
    }
    environment.put(
        "PYTHONPATH", PythonUtils.mergePythonPaths(CollectionConverters.asScala(paths).toSeq()));
  }

  /** Returns the version of the protocol that the planner and the tasks of this jar speak. */
  private static String protocol() throws IOException {
    try (InputStream stream = NodeProcess.class.getResourceAsStream("protocol")) {
      return new String(stream.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  /** Asks a process of a node to end, by the node's name in its status, and waits for that. */
  static void end(String name, long timeoutMs) {
    try {
      ProcessHandle node = ProcessHandle.of(Long.parseLong(name.split("-")[0])).orElse(null);
      if (node != null && node.destroy()) {
        node.onExit().get(timeoutMs, TimeUnit.MILLISECONDS);
      }
    } catch (Exception error) {
      LOG.debug("SparkCache: the node ends with the executor", error);
    }
  }
}
