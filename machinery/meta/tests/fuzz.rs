//! Selectors, quantities, names: whatever is written, they answer, and what they took they write so that it reads the
//! same.

#![allow(clippy::unwrap_used, reason = "a test")]

use machinery_fuzz::{fuzz, growth, in_proportion, lines};
use machinery_meta::field_selector::FieldSelector;
use machinery_meta::label_selector::LabelSelector;
use machinery_meta::quantity::Quantity;
use machinery_meta::{GroupVersion, ObjectHeader, ObjectKey, syntax};

/// Bytes that may be held for each byte of text: what is parsed, what is written again, and what that reads as.
const BYTES_FOR_EACH: usize = 256;

fn with_text(corpus: &str, attempt: impl Fn(&str)) {
    fuzz(lines(corpus), |input| {
        if let Ok(text) = std::str::from_utf8(input) {
            in_proportion(input, BYTES_FOR_EACH, || attempt(text));
        }
    });
}

fn header() -> ObjectHeader {
    ObjectHeader {
        key: ObjectKey::new("default", "web"),
        labels: vec![("app".into(), "web".into()), ("d".into(), "7".into())],
        ..ObjectHeader::default()
    }
}

#[test]
fn label_selectors_are_answered() {
    let header = header();
    with_text(include_str!("../testdata/fuzz/label_selectors.txt"), |text| {
        if let Ok(selector) = LabelSelector::parse(text) {
            let written = selector.to_string();
            assert!(written.len() <= 8 * text.len() + 64);
            let again = LabelSelector::parse(&written).unwrap();
            assert_eq!(again.matches(&header), selector.matches(&header));
        }
    });
}

#[test]
fn field_selectors_are_answered() {
    let header = header();
    with_text(include_str!("../testdata/fuzz/field_selectors.txt"), |text| {
        if let Ok(selector) = FieldSelector::parse(text) {
            let again = FieldSelector::parse(&selector.to_string()).unwrap();
            assert_eq!(again.matches(&header), selector.matches(&header));
        }
    });
}

#[test]
fn quantities_are_answered() {
    with_text(include_str!("../testdata/fuzz/quantities.txt"), |text| {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let written = quantity.to_string();
            assert!(written.len() <= 43, "{written}");
            let again: Quantity = written.parse().unwrap();
            assert_eq!(again.to_string(), written, "the canonical form is stable");
        }
    });
}

#[test]
fn names_are_answered() {
    let names = "web-0.web.default.svc\nUPPER\n-a\na..b\napps/v1\nexample.com/a_b-c\n25%\nX-Header";
    with_text(names, |text| {
        let rules = [
            syntax::dns1123_subdomain,
            syntax::dns1123_label,
            syntax::dns1035_label,
            syntax::wildcard_dns1123_subdomain,
            syntax::qualified_name,
            syntax::label_value,
            syntax::config_map_key,
            syntax::env_var_name,
            syntax::port_name,
            syntax::percent,
            syntax::http_header_name,
            syntax::path_segment_name,
        ];
        for rule in rules {
            drop(rule(text));
        }
        drop(text.parse::<GroupVersion>());
    });
}

/// Selectors of many requirements or values are answered, or refused, in proportion to their length.
#[test]
fn long_selectors_are_answered_in_proportion() {
    let header = header();
    let beyond = growth(40_000, |stages, length| {
        let joined = |text: fn(usize) -> String| (0..length).map(text).collect::<Vec<_>>().join(",");
        let values = joined(|own| format!("b{own}"));
        let many = joined(|own| format!("k{own} notin (a,b{own})"));
        for (stage, text) in [("values", format!("app notin ({values})")), ("labels", many)] {
            stages.of(stage, || {
                in_proportion(text.as_bytes(), BYTES_FOR_EACH, || {
                    LabelSelector::parse(&text)
                        .map(|selector| selector.matches(&header))
                        .ok()
                })
            });
        }
        let fields = joined(|own| format!("metadata.name!=v{own}"));
        stages.of("fields", || {
            in_proportion(fields.as_bytes(), BYTES_FOR_EACH, || {
                FieldSelector::parse(&fields)
                    .map(|selector| selector.matches(&header))
                    .ok()
            })
        });
    });
    assert_eq!(beyond, Vec::<String>::new());
}
