package sparkcache;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The number of rows of a topic, which was planned and is not read. */
record RowCount(String name, long count, int columns) implements LocalScan {
  @Override
  public StructType readSchema() {
    StructType schema = new StructType();
    for (int i = 0; i < columns; i++) {
      schema = schema.add("count_" + i, DataTypes.LongType, false);
    }
    return schema;
  }

  @Override
  public InternalRow[] rows() {
    Object[] values = new Object[columns];
    Arrays.fill(values, count);
    return new InternalRow[] {new GenericInternalRow(values)};
  }

  @Override
  public String description() {
    return "sparkcache " + name + ", counted in the index";
  }
}
