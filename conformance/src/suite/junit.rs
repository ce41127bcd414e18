//! The part of ginkgo's junit report that matters: a test case's name, its seconds, and whether it failed and why.
//!
//! The report is machine-written and flat, so a scan for tags does; entities are resolved.

use anyhow::{Context, Result};

/// Specs of a report.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub ran: Vec<Spec>,
    /// Names of specs that no focus selected, or that skip themselves.
    pub skipped: Vec<String>,
}

/// A spec that ran.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spec {
    pub name: String,
    pub passed: bool,
    pub seconds: f64,
    /// The first line of the failure's message.
    pub message: String,
}

/// Reads a report.
pub(super) fn read(report: &str) -> Result<Report> {
    let mut specs = Report::default();
    for piece in report.split("<testcase ").skip(1) {
        let (head, body) = piece.split_once('>').context("a tag that does not end")?;
        let name = attribute(head, "name").context("a test case without name")?;
        let status = attribute(head, "status").unwrap_or_default();
        // Set-up and tear-down of the suite itself are reported as test cases too.
        let Some(name) = name.strip_prefix("[It] ") else {
            continue;
        };
        if matches!(status.as_str(), "skipped" | "pending") {
            specs.skipped.push(without_labels(name).to_owned());
            continue;
        }
        let seconds = attribute(head, "time").and_then(|time| time.parse().ok());
        let problem = ["<failure ", "<error "]
            .iter()
            .find_map(|tag| body.split_once(tag))
            .and_then(|(_, rest)| attribute(rest, "message"));
        specs.ran.push(Spec {
            name: without_labels(name).to_owned(),
            passed: status == "passed",
            seconds: seconds.unwrap_or_default(),
            message: problem
                .unwrap_or_default()
                .lines()
                .find(|line| !line.trim().is_empty())
                .unwrap_or_default()
                .trim()
                .to_owned(),
        });
    }
    Ok(specs)
}

/// ginkgo appends the labels: ` [sig-apps, Conformance]`. Tags within names have no comma.
fn without_labels(name: &str) -> &str {
    match name.rfind(" [") {
        Some(start) if name[start..].contains(',') && name.ends_with(']') => &name[..start],
        _ => name,
    }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let marker = format!("{name}=\"");
    let start = match tag.starts_with(&marker) {
        true => marker.len(),
        false => tag.find(&format!(" {marker}"))? + marker.len() + 1,
    };
    let value = &tag[start..];
    Some(unescape(&value[..value.find('"')?]))
}

fn unescape(text: &str) -> String {
    [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&#34;", "\""),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&apos;", "'"),
        ("&#xA;", "\n"),
        ("&#x9;", "\t"),
        ("&amp;", "&"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (entity, plain)| {
        text.replace(entity, plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_report_is_read() {
        let report = r#"<testsuites><testsuite name="s">
<testcase name="[SynchronizedBeforeSuite]" classname="c" status="passed" time="1.5"></testcase>
<testcase name="[It] [sig-apps] Job should &#34;work&#34; [Conformance] [sig-apps, Conformance]" classname="c" status="passed" time="2.5"><system-err>x</system-err></testcase>
<testcase name="[It] [sig-apps] Job b [Conformance] [sig-apps, Conformance]" classname="c" status="failed" time="3"><failure message="no&#xA;more" type="failed">y</failure></testcase>
<testcase name="[It] other" classname="c" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
</testsuite></testsuites>"#;
        let Report { ran: specs, skipped } = read(report).unwrap();
        assert_eq!(specs.len(), 2);
        assert_eq!(skipped, ["other"]);
        assert_eq!(specs[0].name, "[sig-apps] Job should \"work\" [Conformance]");
        assert!(specs[0].passed && !specs[1].passed);
        assert_eq!(specs[1].message, "no");
    }
}
