package sparkcache;

import java.util.List;

/**
 * Tells whether Spark uses a batch row by row, in the thread that asks for it.
 *
 * <p>If so, nothing of a batch is used once the next one is asked for: the code that Spark
 * generates to turn columns into rows copies each row before it passes it on. Any other operator
 * may hold the columns for as long as it likes, also beyond the end of its task.
 */
final class RowUse {
  private static final String TO_ROWS = "columnartorow_nextBatch";
  private static final String GENERATED =
      "org.apache.spark.sql.catalyst.expressions.GeneratedClass$";
  private static final List<String> WITHOUT_OPERATORS =
      List.of(
          "sparkcache.",
          "java.",
          "scala.",
          "org.apache.spark.InterruptibleIterator",
          "org.apache.spark.sql.execution.ColumnarToRowExec", // a part of TO_ROWS, since Spark 4.3
          "org.apache.spark.sql.execution.datasources.v2.");

  private final Thread thread = Thread.currentThread();
  private final boolean isByRow = isByRow();

  /** Returns whether what was read so far is used no longer; called by who asks for more. */
  boolean isOver() {
    return isByRow && Thread.currentThread() == thread;
  }

  /** Returns whether the first caller that could be an operator turns columns into rows. */
  private static boolean isByRow() {
    return StackWalker.getInstance()
        .walk(
            frames ->
                frames
                    .filter(
                        frame ->
                            WITHOUT_OPERATORS.stream().noneMatch(frame.getClassName()::startsWith))
                    .findFirst()
                    .filter(
                        frame ->
                            frame.getClassName().startsWith(GENERATED)
                                && frame.getMethodName().startsWith(TO_ROWS))
                    .isPresent());
  }
}
