package sparkcache;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.util.AccumulatorV2;

/**
 * Reports to the driver which executor has read which extents for some plans. Spark delivers the
 * report of each task that succeeds.
 */
final class ExtentReads extends AccumulatorV2<ExtentReads.Read, List<ExtentReads.Read>> {
  /**
   * What a task has read: for each extent its key, as in sparkcache/homes.py, and into how many
   * parts it was cut, 0 if the read does not count. The location is empty if it is not held there.
   */
  record Read(byte[] extents, String location, long task) implements Serializable {}

  private final transient Set<String> plans;
  private final List<Read> reads = new ArrayList<>();

  ExtentReads(Set<String> plans) {
    this.plans = plans;
  }

  @Override
  public boolean isZero() {
    return reads.isEmpty();
  }

  @Override
  public AccumulatorV2<Read, List<Read>> copy() {
    ExtentReads copy = new ExtentReads(plans);
    copy.reads.addAll(reads);
    return copy;
  }

  @Override
  public void reset() {
    reads.clear();
  }

  @Override
  public void add(Read read) {
    reads.add(read);
  }

  /** Spark calls this in the driver, with the report of a task. */
  @Override
  public void merge(AccumulatorV2<Read, List<Read>> other) {
    other.value().forEach(read -> PlanReads.record(plans, read));
  }

  @Override
  public List<Read> value() {
    return reads;
  }
}
