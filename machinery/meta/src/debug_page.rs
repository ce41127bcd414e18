//! `/statusz` and `/flagz` of a component: the forms that a client may request, and the pages as text (KEPs 4827 and 4828).

use std::fmt::Write as _;

use jiff::Timestamp;

/// API group of the pages as objects.
pub const GROUP: &str = "config.k8s.io";
/// Version of the pages as objects.
pub const VERSION: &str = "v1beta1";

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";

/// Form of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Plain text.
    Text,
    /// An object as JSON.
    Json,
    /// An object as YAML.
    Yaml,
}

impl Form {
    /// Media types of the forms, as a refusal names them.
    pub const OFFERED: [&str; 3] = ["application/json", "application/yaml", "text/plain"];

    /// Returns the first form of a page (`Statusz`, `Flagz`) in the order of an `Accept` header; `None` where there is none of them.
    pub fn of(accept: &str, page: &str) -> Option<Self> {
        match accept.trim().is_empty() {
            true => Some(Self::Text),
            false => accept.split(',').find_map(|range| Self::of_range(range, page)),
        }
    }

    fn of_range(range: &str, page: &str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next()?;
        let mut wanted = [("as", page, false), ("v", VERSION, false), ("g", GROUP, false)];
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if let Some((_, own, named)) = wanted.iter_mut().find(|(own, ..)| *own == name) {
                if value != *own {
                    return None;
                }
                *named = true;
            }
        }
        let is_object = wanted.iter().all(|(.., named)| *named);
        let is_plain = !wanted.iter().any(|(.., named)| *named);
        match media_type {
            "text/plain" | "text/*" | "*/*" if is_plain => Some(Self::Text),
            "application/json" if is_object => Some(Self::Json),
            "application/yaml" if is_object => Some(Self::Yaml),
            _ => None,
        }
    }
}

/// Facts of a component's process.
#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    /// Name of the component.
    pub component: &'a str,
    /// Time at which the process began.
    pub began: Timestamp,
    /// Time of the answer.
    pub now: Timestamp,
    /// Language of the program, where upstream has the version of Go.
    pub language: &'a str,
    /// Version of the program, without `v`.
    pub binary_version: &'a str,
    /// Version of the API, `MAJOR.MINOR`.
    pub emulation_version: &'a str,
    /// Paths that the page lists.
    pub paths: &'a [&'a str],
}

impl Process<'_> {
    /// Returns the time at which the process began, in RFC 3339.
    pub fn start_time(&self) -> String {
        self.began.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Returns the seconds since the process began.
    pub fn uptime_seconds(&self) -> i64 {
        self.now.duration_since(self.began).as_secs().max(0)
    }

    /// Returns `/statusz` as text.
    pub fn text(&self) -> String {
        let uptime = self.uptime_seconds();
        format!(
            "\n{} statusz\n{WARNING}\n\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: {}\nBinary version: {}\nEmulation \
             version: {}\nPaths: {}\n",
            self.component,
            self.began.strftime("%a %b %e %H:%M:%S UTC %Y"),
            uptime / 3_600,
            uptime / 60 % 60,
            uptime % 60,
            self.language,
            self.binary_version,
            self.emulation_version,
            self.paths.join(" "),
        )
    }
}

/// Returns `/flagz` as text. No flag holds a secret: secrets are in files.
pub fn flags_text(component: &str, flags: &[(String, String)]) -> String {
    let mut page = format!("\n{component} flagz\n{WARNING}\n");
    for (name, value) in flags {
        // Writing to a string does not fail.
        let _ = writeln!(page, "{name}={value}");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: Option<Form>) {
        assert_eq!(Form::of(accept, "Statusz"), expected, "{accept}");
    }

    #[test]
    fn debug_pages_are_negotiated_as_upstreams() {
        check("", Some(Form::Text));
        check("*/*", Some(Form::Text));
        check("text/html, text/plain;q=0.5", Some(Form::Text));
        check("text/html", None);
        check("application/json", None);
        let object = "application/json;as=Statusz;v=v1beta1;g=config.k8s.io";
        check(object, Some(Form::Json));
        check(&object.replace("json", "yaml"), Some(Form::Yaml));
        check(&object.replace("Statusz", "Flagz"), None);
        check(&object.replace("v1beta1", "v2"), None);
        check(
            &format!("{}, */*", object.replace("v1beta1", "v2")),
            Some(Form::Text),
        );
    }
}
