package sparkcache;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The filters of a query that compare a column with values; see sparkcache/filters.py.
 *
 * <p>Spark applies all filters again. So a filter that is not understood here is left out.
 */
final class Filters {
  private static final Map<String, String> SIGNS =
      Map.of("=", "=", "<=>", "=", "<>", "!=", "<", "<", "<=", "<=", ">", ">", ">=", ">=");
  private static final List<DataType> TYPES =
      List.of(
          DataTypes.BooleanType,
          DataTypes.ByteType,
          DataTypes.ShortType,
          DataTypes.IntegerType,
          DataTypes.LongType,
          DataTypes.DateType,
          DataTypes.TimestampType,
          DataTypes.TimestampNTZType,
          DataTypes.StringType,
          DataTypes.BinaryType);

  static final Filters NONE = new Filters(List.of(), List.of());

  /** One comparison; its fields are those of the class in Python. */
  private record Filter(String column, String sign, List<Object> values) {}

  private final List<Predicate> predicates;
  private final List<Filter> filters;

  private Filters(List<Predicate> predicates, List<Filter> filters) {
    this.predicates = predicates;
    this.filters = filters;
  }

  /** Returns those of the predicates, all of which must hold, that are understood. */
  static Filters of(Predicate[] all, StructType schema) {
    List<Predicate> understood = new ArrayList<>();
    List<Filter> filters = new ArrayList<>();
    for (Predicate predicate : all) {
      Filter filter = filter(predicate, schema);
      if (filter != null) {
        understood.add(predicate);
        filters.add(filter);
      }
    }
    return new Filters(understood, filters);
  }

  /** Returns the filters on some columns. */
  Filters on(Collection<String> columns) {
    List<Predicate> left = new ArrayList<>();
    List<Filter> filtersLeft = new ArrayList<>();
    for (int i = 0; i < filters.size(); i++) {
      if (columns.contains(filters.get(i).column())) {
        left.add(predicates.get(i));
        filtersLeft.add(filters.get(i));
      }
    }
    return new Filters(left, filtersLeft);
  }

  /** Returns the filters in words. */
  @Override
  public String toString() {
    StringBuilder words = new StringBuilder();
    for (Predicate predicate : predicates) {
      words.append(words.isEmpty() ? ", where " : " and ").append(predicate);
    }
    return words.toString();
  }

  Predicate[] predicates() {
    return predicates.toArray(new Predicate[0]);
  }

  /** Returns the filters for Python. */
  String json() {
    try {
      return new ObjectMapper().writeValueAsString(filters);
    } catch (JsonProcessingException error) {
      throw new IllegalStateException(error);
    }
  }

  private static Filter filter(Predicate predicate, StructType schema) {
    Expression[] children = predicate.children();
    if (children.length == 0
        || !(children[0] instanceof NamedReference reference)
        || reference.fieldNames().length != 1) {
      return null;
    }
    String column = reference.fieldNames()[0];
    if (schema.getFieldIndex(column).isEmpty()) {
      return null;
    }
    switch (predicate.name()) {
      case "IS_NULL":
        return new Filter(column, "is null", List.of());
      case "IS_NOT_NULL":
        return new Filter(column, "is not null", List.of());
      default:
        String sign = predicate.name().equals("IN") ? "in" : SIGNS.get(predicate.name());
        List<Object> values = values(children, schema.apply(column).dataType());
        return sign == null || values.isEmpty() ? null : new Filter(column, sign, values);
    }
  }

  /** Returns the values after the first child; none if one of them is not understood. */
  private static List<Object> values(Expression[] children, DataType type) {
    List<Object> values = new ArrayList<>();
    for (int i = 1; i < children.length; i++) {
      Object value =
          children[i] instanceof Literal<?> literal && literal.dataType().equals(type)
              ? value(literal)
              : null;
      if (value == null) {
        return List.of();
      }
      values.add(value);
    }
    return values;
  }

  private static Object value(Literal<?> literal) {
    Object value = literal.value();
    if (literal.dataType() instanceof DecimalType && value instanceof Decimal decimal) {
      return decimal.toJavaBigDecimal().toPlainString();
    }
    if (!TYPES.contains(literal.dataType())) {
      return null;
    }
    if (value instanceof byte[] bytes) {
      return new String(bytes, StandardCharsets.ISO_8859_1);
    }
    return value instanceof UTF8String text ? text.toString() : value;
  }
}
