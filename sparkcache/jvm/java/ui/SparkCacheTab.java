package org.apache.spark.sparkcache;

import java.io.InputStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.function.Supplier;

/**
 * The tab and its only page. The page fetches its data as JSON, from the same address.
 *
 * <p>Without the jar, Janino compiles this file: it supports neither lambdas nor generics. Methods
 * that differ between Spark 4.0 and 4.3 are looked up by name.
 */
public final class SparkCacheTab extends org.apache.spark.ui.SparkUITab {
  private final Supplier reports;
  private String page;
  private volatile String latest = "{}";
  private volatile long askedMs;

  public SparkCacheTab(org.apache.spark.ui.SparkUI ui, Supplier reports) {
    super(ui, "sparkcache");
    this.reports = reports;
    attachPage(new Page(this));
  }

  public String name() {
    return "SparkCache";
  }

  /** Sets the page, if no jar contains it. */
  public synchronized void setPage(String page) {
    this.page = page;
  }

  /** Sets the reports to show, if no plugin supplies them. */
  public void update(String json) {
    latest = json;
  }

  /** Returns the time of a browser's last request, in milliseconds since 1970; 0 if none. */
  public long askedMs() {
    return askedMs;
  }

  String json() {
    askedMs = System.currentTimeMillis();
    return reports == null ? latest : (String) reports.get();
  }

  synchronized String page() throws java.io.IOException {
    if (page == null) {
      InputStream stream = SparkCacheTab.class.getResourceAsStream("page.html");
      page = new String(stream.readAllBytes(), StandardCharsets.UTF_8);
      stream.close();
    }
    return page;
  }

  static final class Page extends org.apache.spark.ui.WebUIPage {
    private final SparkCacheTab tab;

    Page(SparkCacheTab tab) {
      super("");
      this.tab = tab;
    }

    public scala.collection.immutable.Seq render(jakarta.servlet.http.HttpServletRequest request) {
      final scala.xml.Unparsed content;
      try {
        content = new scala.xml.Unparsed(tab.page().replace("{nonce}", nonce()));
      } catch (java.io.IOException error) {
        throw new RuntimeException(error);
      }
      return headed(request, new Content(content), tab);
    }

    public org.json4s.JValue renderJson(jakarta.servlet.http.HttpServletRequest request) {
      try {
        return (org.json4s.JValue)
            org.json4s.jackson.JsonMethods$.MODULE$
                .mapper()
                .readValue(tab.json(), org.json4s.JValue.class);
      } catch (java.io.IOException error) {
        throw new RuntimeException(error);
      }
    }

    /** Returns the page below Spark's header; the arguments after the fifth are flags. */
    private static scala.collection.immutable.Seq headed(
        jakarta.servlet.http.HttpServletRequest request, Content content, SparkCacheTab tab) {
      Method[] methods = org.apache.spark.ui.UIUtils.class.getMethods();
      for (int i = 0; i < methods.length; i++) {
        if (methods[i].getName().equals("headerSparkPage")) {
          Object[] arguments = new Object[methods[i].getParameterTypes().length];
          java.util.Arrays.fill(arguments, Boolean.FALSE);
          arguments[0] = request;
          arguments[1] = "SparkCache";
          arguments[2] = content;
          arguments[3] = tab;
          arguments[4] = scala.Option.empty();
          return (scala.collection.immutable.Seq) call(methods[i], arguments);
        }
      }
      throw new IllegalStateException("this Spark has no UIUtils.headerSparkPage");
    }

    /** Returns the nonce that Spark's policy demands of scripts; empty on Spark 4.0. */
    private static String nonce() {
      final Method get;
      try {
        get = Class.forName("org.apache.spark.ui.CspNonce").getMethod("get", new Class[0]);
      } catch (ReflectiveOperationException error) {
        return "";
      }
      Object nonce = call(get, new Object[0]);
      return nonce == null ? "" : (String) nonce;
    }

    private static Object call(Method method, Object[] arguments) {
      try {
        return method.invoke(null, arguments);
      } catch (ReflectiveOperationException error) {
        throw new RuntimeException(error);
      }
    }
  }

  static final class Content extends scala.runtime.AbstractFunction0 {
    private final scala.xml.Unparsed content;

    Content(scala.xml.Unparsed content) {
      this.content = content;
    }

    public Object apply() {
      return content;
    }
  }
}
