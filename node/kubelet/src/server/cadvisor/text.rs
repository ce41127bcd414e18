//! Families in Prometheus' text form.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::server::usage::rows::Row;

/// A label and its value.
pub(super) type Label<'a> = (&'a str, &'a str);

/// A family of figures of groups: its name, kind and help, and its samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) help: &'static str,
    pub(super) of: Of,
}

/// Samples of a group; an unknown one has none.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of {
    /// One, with the time of the reading.
    Usage(fn(&Row) -> Option<f64>),
    /// One without a time: what does not change from reading to reading.
    Fact(fn(&Row) -> Option<f64>),
    /// Several, with labels of their own.
    Labelled(fn(&Row, &mut Samples<'_>)),
    /// One: the time of the reading.
    Seen,
}

impl Family {
    pub(super) const fn counter(name: &'static str, help: &'static str, of: fn(&Row) -> Option<f64>) -> Self {
        Self {
            name,
            kind: "counter",
            help,
            of: Of::Usage(of),
        }
    }

    pub(super) const fn gauge(name: &'static str, help: &'static str, of: fn(&Row) -> Option<f64>) -> Self {
        Self {
            kind: "gauge",
            ..Self::counter(name, help, of)
        }
    }

    pub(super) const fn fact(name: &'static str, help: &'static str, of: fn(&Row) -> Option<f64>) -> Self {
        Self {
            name,
            kind: "gauge",
            help,
            of: Of::Fact(of),
        }
    }

    pub(super) const fn labelled(
        (name, kind): (&'static str, &'static str),
        help: &'static str,
        of: fn(&Row, &mut Samples<'_>),
    ) -> Self {
        Self {
            name,
            kind,
            help,
            of: Of::Labelled(of),
        }
    }
}

/// Receiver of a group's samples.
pub(super) struct Samples<'a> {
    out: &'a mut String,
    name: &'a str,
    own: &'a [Label<'a>],
    at: Option<i64>,
}

impl Samples<'_> {
    /// Writes a sample with these labels beside the group's.
    pub(super) fn add(&mut self, labels: &[Label<'_>], value: Option<f64>) {
        let Some(value) = value else { return };
        self.out.push_str(self.name);
        write_labels(self.out, self.own, labels);
        let _ = match self.at {
            Some(at) => writeln!(self.out, " {value} {at}"),
            None => writeln!(self.out, " {value}"),
        };
    }
}

/// Writes the families that have samples.
pub(super) fn write_families<'a>(
    out: &mut String,
    families: impl IntoIterator<Item = &'a Family>,
    rows: &[Row],
    now: Timestamp,
) {
    let labels: Vec<[String; 6]> = rows.iter().map(escaped_labels).collect();
    for family in families {
        let before = out.len();
        heading(out, family.name, family.kind, family.help);
        let empty = out.len();
        for (row, labels) in rows.iter().zip(&labels) {
            write_row(out, family, row, labels, now);
        }
        if out.len() == empty {
            out.truncate(before);
        }
    }
}

fn write_row(out: &mut String, family: &Family, row: &Row, labels: &[String; 6], now: Timestamp) {
    let [container, id, image, name, namespace, pod] = labels;
    let own: [Label<'_>; 6] = [
        ("container", container),
        ("id", id),
        ("image", image),
        ("name", name),
        ("namespace", namespace),
        ("pod", pod),
    ];
    let mut samples = Samples {
        out,
        name: family.name,
        own: &own,
        at: Some(now.as_millisecond()),
    };
    match family.of {
        Of::Usage(value) => samples.add(&[], value(row)),
        Of::Labelled(write) => write(row, &mut samples),
        Of::Seen => samples.add(&[], Some(now.as_second() as f64)),
        Of::Fact(value) => {
            samples.at = None;
            samples.add(&[], value(row));
        }
    }
}

fn escaped_labels(row: &Row) -> [String; 6] {
    let group = &row.group;
    [
        &group.container,
        &group.id,
        &group.image,
        &group.name,
        &group.namespace,
        &group.pod,
    ]
    .map(|value| escaped(value))
}

pub(super) fn heading(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Writes two lists of labels, each in the order of the names, as one. The values are escaped.
fn write_labels(out: &mut String, own: &[Label<'_>], others: &[Label<'_>]) {
    out.push('{');
    let (mut own, mut others) = (own.iter().peekable(), others.iter().peekable());
    let mut separator = "";
    loop {
        let next = match (own.peek(), others.peek()) {
            (Some(one), Some(other)) if one.0 < other.0 => own.next(),
            (_, Some(_)) => others.next(),
            (Some(_), None) => own.next(),
            (None, None) => break,
        };
        if let Some((name, value)) = next {
            let _ = write!(out, "{separator}{name}=\"{value}\"");
            separator = ",";
        }
    }
    out.push('}');
}

/// Labels of a sample that belongs to no group, in the order of their names.
pub(super) fn labels(own: &[Label<'_>]) -> String {
    let escaped: Vec<(&str, String)> = own.iter().map(|(name, value)| (*name, escaped(value))).collect();
    let escaped: Vec<Label<'_>> = escaped
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let mut out = String::new();
    write_labels(&mut out, &escaped, &[]);
    out
}

/// A label is cut to so many bytes.
const LABEL_MAX: usize = 512;

/// A value as Prometheus' text has it: images and links are named by pods.
pub(super) fn escaped(value: &str) -> String {
    value[..value.floor_char_boundary(LABEL_MAX)]
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
