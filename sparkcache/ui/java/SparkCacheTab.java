package org.apache.spark.sparkcache;

import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.function.Supplier;

/**
 * The tab and its only page. What is in the tables comes as JSON, from the same address.
 *
 * <p>Janino compiles this file where there is no jar: it knows no lambdas, and no generics.
 */
public final class SparkCacheTab extends org.apache.spark.ui.SparkUITab {
  private final Supplier reports;
  private String page;
  private volatile String told = "{}";
  private volatile long askedMs;

  public SparkCacheTab(org.apache.spark.ui.SparkUI ui, Supplier reports) {
    super(ui, "sparkcache");
    this.reports = reports;
    attachPage(new Page(this));
  }

  public String name() {
    return "SparkCache";
  }

  /** Sets the page where there is no jar to take it from. */
  public synchronized void setPage(String page) {
    this.page = page;
  }

  /** Sets what is told where there is no plugin to supply it. */
  public void tell(String json) {
    told = json;
  }

  /** When somebody last looked; 0 if nobody did. */
  public long askedMs() {
    return askedMs;
  }

  String json() {
    askedMs = System.currentTimeMillis();
    return reports == null ? told : (String) reports.get();
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
      return org.apache.spark.ui.UIUtils.headerSparkPage(
          request, "SparkCache", new Content(content), tab, scala.Option.empty(), false, false, false);
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

    private static String nonce() {
      String nonce = org.apache.spark.ui.CspNonce.get();
      return nonce == null ? "" : nonce;
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
