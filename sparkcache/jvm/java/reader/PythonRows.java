package sparkcache;

import java.io.IOException;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.RowToColumnConverter;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The rows of a partition as Python reads them, some of the columns, as batches. */
final class PythonRows implements PartitionReader<ColumnarBatch> {
  private static final int MAX_ROWS = 4096;

  private final PartitionReader<InternalRow> rows;
  private final StructType wanted;
  private final RowToColumnConverter converter;
  private long toSkip;
  private ColumnarBatch batch;

  /** Begins after the first `toSkip` rows. */
  PythonRows(
      PartitionReader<InternalRow> rows, StructType schema, StructType wanted, long toSkip) {
    this.rows = projected(rows, schema, wanted);
    this.wanted = wanted;
    this.toSkip = toSkip;
    converter = new RowToColumnConverter(wanted);
  }

  @Override
  public boolean next() throws IOException {
    for (; toSkip > 0; toSkip--) {
      if (!rows.next()) {
        return false;
      }
      rows.get(); // it is this that goes on to the next row
    }
    if (!rows.next()) {
      return false;
    }
    // New vectors for each batch: Spark may still read those of the last one.
    OnHeapColumnVector[] columns = OnHeapColumnVector.allocateColumns(MAX_ROWS, wanted);
    int count = 0;
    do {
      converter.convert(rows.get(), columns);
      count++;
    } while (count < MAX_ROWS && rows.next());
    batch = new ColumnarBatch(columns, count);
    return true;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() throws IOException {
    rows.close();
  }

  /** Returns a reader of some of the columns, in another order. */
  static PartitionReader<InternalRow> projected(
      PartitionReader<InternalRow> rows, StructType schema, StructType wanted) {
    if (Arrays.equals(schema.fieldNames(), wanted.fieldNames())) {
      return rows;
    }
    scala.collection.mutable.ArrayBuffer<Object> ordinals =
        new scala.collection.mutable.ArrayBuffer<>();
    for (String name : wanted.fieldNames()) {
      ordinals.addOne(schema.fieldIndex(name));
    }
    ProjectingInternalRow row = new ProjectingInternalRow(wanted, ordinals.toIndexedSeq());
    return new PartitionReader<>() {
      @Override
      public boolean next() throws IOException {
        return rows.next();
      }

      @Override
      public InternalRow get() {
        row.project(rows.get());
        return row;
      }

      @Override
      public void close() throws IOException {
        rows.close();
      }
    };
  }
}
