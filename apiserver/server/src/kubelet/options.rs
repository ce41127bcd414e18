//! The options of a streaming request, as clients write them and as the kubelet reads them.

use apiserver_endpoints::{Query, params};
use apiserver_registry::RegistryError;
use jiff::Timestamp;
use machinery_meta::{FieldError, FieldPath, GroupKind};
use machinery_schema::Ref;
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
pub(super) fn streams(options: Ref<'_>) -> Params {
    let mut params = Params::default();
    for (theirs, ours) in [
        ("stdin", "input"),
        ("stdout", "output"),
        ("stderr", "error"),
        ("tty", "tty"),
    ] {
        if options.get(theirs).and_then(Ref::as_bool) == Some(true) {
            params.add(ours, "1");
        }
    }
    for command in options.list("command").filter_map(Ref::as_str) {
        params.add("command", command);
    }
    params
}

/// `log`: the kubelet has the same names. Upstream hands a time on in whole seconds.
pub(super) fn log(query: &Query) -> Params {
    let mut params = Params::default();
    for name in ["follow", "previous", "timestamps"] {
        if query.boolean(name) {
            params.add(name, "true");
        }
    }
    for name in ["sinceSeconds", "tailLines", "limitBytes"] {
        if let Some(value) = query.get(name).filter(|value| !value.is_empty()) {
            params.add(name, value);
        }
    }
    if let Some(time) = query
        .get("sinceTime")
        .and_then(|text| text.parse::<Timestamp>().ok())
    {
        params.add("sinceTime", &time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    params
}

/// Refuses options of `log` that cannot be parsed or contradict each other.
pub(super) fn check_log(query: &Query, pod: &str) -> Result<(), RegistryError> {
    let mut errors = Vec::new();
    let mut number = |name: &'static str, least: i64, detail: &str| -> Result<bool, RegistryError> {
        let Some(text) = query.get(name) else {
            return Ok(false);
        };
        let value = params::parse_int(text)?;
        if value < least {
            errors.push(FieldError::invalid(&FieldPath::new(name), value, detail));
        }
        Ok(true)
    };
    number("tailLines", 0, "must be greater than or equal to 0")?;
    number("limitBytes", 1, "must be greater than 0")?;
    let since_seconds = number("sinceSeconds", 1, "must be greater than 0")?;
    if since_time(query)? && since_seconds {
        errors.retain(|error| error.path.as_str() != "sinceSeconds");
        let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        // Upstream's path of the options as a whole.
        errors.push(FieldError::forbidden(&FieldPath::new("[]"), detail));
    }
    if query.get("stream").is_some() {
        // Choosing a stream is behind a gate that is off.
        let path = FieldPath::new("stream");
        errors.push(FieldError::forbidden(&path, "may not be specified"));
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

/// Reports whether a time is given; an empty one is none.
fn since_time(query: &Query) -> Result<bool, RegistryError> {
    let Some(text) = query.get("sinceTime").filter(|text| !text.is_empty()) else {
        return Ok(false);
    };
    if text.parse::<Timestamp>().is_ok() {
        return Ok(true);
    }
    const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
    Err(RegistryError::BadRequest(format!(
        "parsing time {text:?} as {LAYOUT:?}: cannot parse {text:?} as \"2006\""
    )))
}

/// `portforward`.
pub(super) fn ports(options: Ref<'_>) -> Params {
    let mut params = Params::default();
    let ports: Vec<String> = options
        .list("ports")
        .filter_map(Ref::as_i64)
        .map(|port| port.to_string())
        .collect();
    if !ports.is_empty() {
        params.add("port", &ports.join(","));
    }
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_which_a_log_is_wanted_goes_on_in_whole_seconds() {
        let query = Query::parse("sinceTime=2026-11-21T13:00:00.9%2B01:00&tailLines=2");
        let handed_on = log(&query).into_text();
        assert_eq!(handed_on, "?tailLines=2&sinceTime=2026-11-21T12%3A00%3A00Z");
    }
}
