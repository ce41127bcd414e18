//! The query of a streaming request, as clients write it and as the kubelet reads it.

use apiserver_endpoints::Query;
use apiserver_registry::RegistryError;
use machinery_meta::{FieldError, FieldPath, GroupKind};
use std::fmt::Write as _;

/// A query under construction.
#[derive(Debug, Default)]
pub(super) struct Params(String);

impl Params {
    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    self.0.push(byte.into())
                }
                // Writing to a string does not fail.
                other => {
                    let _ = write!(self.0, "%{other:02X}");
                }
            }
        }
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// `exec` and `attach`: the kubelet has other names for the streams.
pub(super) fn streams(query: &Query) -> Params {
    let mut params = Params::default();
    for (theirs, ours) in [
        ("stdin", "input"),
        ("stdout", "output"),
        ("stderr", "error"),
        ("tty", "tty"),
    ] {
        if query.boolean(theirs) {
            params.add(ours, "1");
        }
    }
    for command in query.all("command") {
        params.add("command", command);
    }
    params
}

/// `log`: the kubelet has the same names.
pub(super) fn log(query: &Query) -> Params {
    let mut params = Params::default();
    for name in ["follow", "previous", "timestamps"] {
        if query.boolean(name) {
            params.add(name, "true");
        }
    }
    for name in ["sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"] {
        if let Some(value) = query.get(name).filter(|value| !value.is_empty()) {
            params.add(name, value);
        }
    }
    params
}

/// What of the options of `log` makes no sense.
pub(super) fn check_log(query: &Query, pod: &str) -> Result<(), RegistryError> {
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<i64>().ok());
    let mut errors = Vec::new();
    for (name, least, detail) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ] {
        if let Some(value) = number(name).filter(|value| *value < least) {
            errors.push(FieldError::invalid(&FieldPath::new(name), value, detail));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(RegistryError::Invalid {
        kind: GroupKind {
            group: String::new(),
            kind: "PodLogOptions".into(),
        },
        name: pod.to_owned(),
        errors,
    })
}

/// `portforward`.
pub(super) fn ports(query: &Query) -> Params {
    let mut params = Params::default();
    for port in query.all("ports") {
        params.add("port", port);
    }
    params
}
