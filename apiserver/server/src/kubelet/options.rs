//! The query of a streaming request, as clients write it and as the kubelet reads it.

use apiserver_endpoints::Query;
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

/// `portforward`.
pub(super) fn ports(query: &Query) -> Params {
    let mut params = Params::default();
    for port in query.all("ports") {
        params.add("port", port);
    }
    params
}
