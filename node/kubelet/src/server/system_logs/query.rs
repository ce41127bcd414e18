//! Parameters of a query of logs, and the rules about them: upstream's `newNodeLogQuery` and `validate`, in its words. The pattern is checked
//! by the program that reads the journal.

use std::path::Path;

use jiff::Timestamp;
use machinery_meta::go_text::go_quote;
use serde_json::json;

use crate::logs::time::rfc3339;
use crate::server::query::Query;

const SERVICES_MAX: usize = 4;
const SERVICE_BYTES_MAX: usize = 256;
const TAIL_LINES_MAX: i64 = 100_000;
/// Bytes of a pattern. Upstream's has those of an address.
const PATTERN_BYTES_MAX: usize = 1_024;

/// A query that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogRequest {
    services: Vec<String>,
    files: Vec<String>,
    options: LogQueryOptions,
}

/// Options of a query of services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogQueryOptions {
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
    pub(super) tail_lines: Option<i64>,
    pub(super) boot: Option<i64>,
    pub(super) pattern: String,
}

/// Services whose logs are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedServices {
    pub(super) services: Vec<String>,
    pub(super) options: LogQueryOptions,
}

/// A query that makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogQuery {
    Services(WantedServices),
    File(String),
}

/// Reads the parameters; `None` where there are none.
pub(super) fn read(query: &Query) -> Result<Option<LogRequest>, String> {
    let mut problems = Vec::new();
    let all = query.all("query");
    let mut request = LogRequest::default();
    for name in &all {
        match name.contains(['/', '\\']) {
            true => request.files.push(name.clone()),
            false if name.trim().is_empty() => {}
            false => request.services.push(name.clone()),
        }
    }
    if !all.is_empty() && request.files.is_empty() && request.services.is_empty() {
        problems.push(format!("query: Invalid value: {}: may not be empty", json!(all)));
    }
    let options = &mut request.options;
    for (name, place) in [
        ("sinceTime", &mut options.since),
        ("untilTime", &mut options.until),
    ] {
        let Some(given) = given(query, name) else { continue };
        *place = rfc3339(given);
        if place.is_none() {
            let given = go_quote(given);
            problems.push(format!("{name}: Invalid value: {given}: invalid time format"));
        }
    }
    for (name, place) in [
        ("boot", &mut options.boot),
        ("tailLines", &mut options.tail_lines),
    ] {
        let Some(given) = given(query, name) else { continue };
        *place = given.parse().ok();
        if place.is_none() {
            let given = go_quote(given);
            problems.push(format!(
                "{name}: Invalid value: {given}: strconv.Atoi: parsing {given}: invalid syntax"
            ));
        }
    }
    options.pattern = given(query, "pattern").unwrap_or_default().to_owned();
    match joined(problems) {
        Some(words) => Err(words),
        None => Ok((request != LogRequest::default()).then_some(request)),
    }
}

fn given<'a>(query: &'a Query, name: &str) -> Option<&'a str> {
    query.get(name).filter(|value| !value.is_empty())
}

/// Words of all problems, as upstream's aggregate of errors.
fn joined(problems: Vec<String>) -> Option<String> {
    match problems.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

impl LogRequest {
    /// Checks it all; a file is looked for in the folder. Blocks.
    pub(super) fn checked(self, folder: &Path) -> Result<LogQuery, String> {
        let mut problems = services(&self.services);
        problems.extend(self.subjects(folder));
        problems.extend(options(&self.options));
        if let Some(words) = joined(problems) {
            return Err(words);
        }
        Ok(match self.files.into_iter().next() {
            Some(file) => LogQuery::File(file.replace('\\', "/")),
            None => LogQuery::Services(WantedServices {
                services: self.services,
                options: self.options,
            }),
        })
    }

    fn subjects(&self, folder: &Path) -> Option<String> {
        let invalid = |words: &str| Some(format!("query: Invalid value: {}: {words}", json!(self.files)));
        match (self.files.as_slice(), self.services.as_slice()) {
            ([], []) => Some("query: Required value: cannot be empty with options".to_owned()),
            ([_, ..], [_, ..]) => {
                let both = format!("[{}], [{}]", self.files.join(" "), self.services.join(" "));
                let both = go_quote(&both);
                Some(format!(
                    "query: Invalid value: {both}: cannot specify a file and service"
                ))
            }
            ([_, _, ..], []) => invalid("cannot specify more than one file"),
            ([_], []) if self.options != LogQueryOptions::default() => {
                invalid("cannot specify file with options")
            }
            ([file], []) => {
                let inside = super::files::cleaned(&file.replace('\\', "/"));
                match std::fs::symlink_metadata(folder.join(&inside)) {
                    Ok(_) => None,
                    Err(_) => invalid(&format!("statat {inside}: no such file or directory")),
                }
            }
            ([], _) => None,
        }
    }
}

fn services(services: &[String]) -> Vec<String> {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
    let wrong = services.iter().filter_map(|service| {
        let words = match service {
            long if long.len() > SERVICE_BYTES_MAX => format!("length must be less than {SERVICE_BYTES_MAX}"),
            unsafe_one if !unsafe_one.bytes().all(is_safe) => {
                "input contains unsupported characters".to_owned()
            }
            _ => return None,
        };
        Some(format!("query: Invalid value: {}: {words}", go_quote(service)))
    });
    let mut problems: Vec<String> = wrong.collect();
    if services.len() > SERVICES_MAX {
        problems.push(format!(
            "query: Too many: {}: must have at most {SERVICES_MAX} items",
            services.len()
        ));
    }
    problems
}

fn options(options: &LogQueryOptions) -> Vec<String> {
    let mut problems = Vec::new();
    if let (Some(since), Some(until)) = (options.since, options.until)
        && since > until
    {
        problems.push(format!(
            "untilTime: Invalid value: \"{until}\": must be after `sinceTime`"
        ));
    }
    if let Some(boot) = options.boot.filter(|boot| *boot > 0) {
        problems.push(format!("boot: Invalid value: {boot}: must be less than 1"));
    }
    let lines = options.tail_lines;
    if let Some(lines) = lines.filter(|lines| !(0..=TAIL_LINES_MAX).contains(lines)) {
        problems.push(format!(
            "tailLines: Invalid value: {lines}: must be between 0 and {TAIL_LINES_MAX}, inclusive"
        ));
    }
    if options.pattern.len() > PATTERN_BYTES_MAX {
        problems.push(format!(
            "pattern: Too long: may not be more than {PATTERN_BYTES_MAX} bytes"
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(query: &str) -> Result<Option<LogQuery>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("syslog"), "").unwrap();
        let request = read(&Query::parse(query))?;
        request.map(|request| request.checked(folder.path())).transpose()
    }

    #[track_caller]
    fn refuses(query: &str, words: &str) {
        assert_eq!(checked(query).unwrap_err(), words, "{query}");
    }

    #[test]
    fn log_query_is_one_of_services_with_options_or_of_a_file() {
        assert_eq!(checked("").unwrap(), None);
        assert_eq!(checked("other=1").unwrap(), None);
        let file = LogQuery::File("/syslog".to_owned());
        assert_eq!(checked("query=/syslog").unwrap(), Some(file));
        let query = "query=kubelet&query=a%40b.service&sinceTime=2026-11-21T12:00:00Z&tailLines=7&boot=-1&pattern=x%2Ay";
        let wanted = WantedServices {
            services: vec!["kubelet".to_owned(), "a@b.service".to_owned()],
            options: LogQueryOptions {
                since: Some("2026-11-21T12:00:00Z".parse().unwrap()),
                tail_lines: Some(7),
                boot: Some(-1),
                pattern: "x*y".to_owned(),
                ..LogQueryOptions::default()
            },
        };
        assert_eq!(checked(query).unwrap(), Some(LogQuery::Services(wanted)));
    }

    #[test]
    fn log_query_that_makes_no_sense_is_refused_in_upstreams_words() {
        refuses("query=+", "query: Invalid value: [\" \"]: may not be empty");
        refuses(
            "query=a&sinceTime=x",
            "sinceTime: Invalid value: \"x\": invalid time format",
        );
        refuses(
            "query=a&boot=x&tailLines=y",
            "[boot: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax, tailLines: Invalid value: \"y\": strconv.Atoi: \
             parsing \"y\": invalid syntax]",
        );
        refuses(
            "tailLines=1",
            "query: Required value: cannot be empty with options",
        );
        refuses(
            "query=/a&query=b",
            "query: Invalid value: \"[/a], [b]\": cannot specify a file and service",
        );
        refuses(
            "query=/a&query=/b",
            "query: Invalid value: [\"/a\",\"/b\"]: cannot specify more than one file",
        );
        refuses(
            "query=/syslog&boot=0",
            "query: Invalid value: [\"/syslog\"]: cannot specify file with options",
        );
        refuses(
            "query=/none",
            "query: Invalid value: [\"/none\"]: statat none: no such file or directory",
        );
        refuses(
            "query=a%3Bb",
            "query: Invalid value: \"a;b\": input contains unsupported characters",
        );
        refuses("query=a&boot=1", "boot: Invalid value: 1: must be less than 1");
        refuses(
            "query=a&tailLines=-1",
            "tailLines: Invalid value: -1: must be between 0 and 100000, inclusive",
        );
        refuses(
            "query=a&query=b&query=c&query=d&query=e",
            "query: Too many: 5: must have at most 4 items",
        );
        refuses(
            "query=a&sinceTime=2026-11-21T12:00:00Z&untilTime=2026-11-21T11:00:00Z",
            "untilTime: Invalid value: \"2026-11-21T11:00:00Z\": must be after `sinceTime`",
        );
    }
}
