//! Options of each verb, read from the query and checked in upstream's words.

use crate::request_info::Query;
use apiserver_registry::RegistryError;
use apiserver_registry::managed_fields;
use apiserver_registry::options::{
    CreateOptions, DeleteOptions, FieldValidation, ListOptions, Preconditions, Propagation, RevisionMatch,
    UpdateOptions, WatchOptions,
};
use machinery_meta::field::Shown;
use machinery_meta::field_selector::FieldSelector;
use machinery_meta::label_selector::LabelSelector;
use machinery_meta::{FieldError, FieldPath, Predicate, Revision, Uid};
use std::num::{IntErrorKind, ParseIntError};
use std::time::Duration;

const NOT_OLDER_THAN: &str = "NotOlderThan";
const EXACT: &str = "Exact";

/// Options of a list or a watch, before the two are distinguished.
#[derive(Debug, Default)]
struct Raw<'q> {
    resource_version: &'q str,
    resource_version_match: &'q str,
    continue_token: &'q str,
    limit: i64,
    timeout_seconds: Option<i64>,
    send_initial_events: Option<bool>,
}

/// Reads the options of a list (and of deletecollection's selection).
pub fn list(query: &Query, name: &str) -> Result<ListOptions, RegistryError> {
    let raw = raw(query)?;
    let problems = check_list(&raw);
    if !problems.is_empty() {
        return Err(RegistryError::invalid_options("ListOptions", problems));
    }
    // A negative limit is none, as upstream takes it.
    let limit = usize::try_from(raw.limit).unwrap_or(0);
    Ok(ListOptions {
        predicate: predicate(query, name)?,
        revision: revision_match(&raw, limit)?,
        limit,
        continue_token: raw.continue_token.to_owned(),
    })
}

fn revision_match(raw: &Raw<'_>, limit: usize) -> Result<RevisionMatch, RegistryError> {
    let revision = parse_revision(raw.resource_version)?;
    Ok(match (raw.resource_version_match, revision) {
        (_, None) => RevisionMatch::MostRecent,
        (EXACT, Some(revision)) => RevisionMatch::Exact(revision),
        (_, Some(Revision::ZERO)) => RevisionMatch::Any,
        ("", Some(revision)) if limit > 0 => RevisionMatch::Limited(revision),
        (_, Some(revision)) => RevisionMatch::NotOlderThan(revision),
    })
}

/// The revision a `get` requests.
pub fn get(query: &Query) -> Result<RevisionMatch, RegistryError> {
    Ok(
        match plain_revision(query.get("resourceVersion").unwrap_or_default())? {
            None => RevisionMatch::MostRecent,
            Some(Revision::ZERO) => RevisionMatch::Any,
            Some(revision) => RevisionMatch::NotOlderThan(revision),
        },
    )
}

/// Reads the revision of a get or watch, where upstream answers a failure of its own.
fn plain_revision(text: &str) -> Result<Option<Revision>, RegistryError> {
    parse_revision(text).map_err(|_| {
        RegistryError::Unclassified(format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

fn parse_revision(text: &str) -> Result<Option<Revision>, RegistryError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        RegistryError::BadRequest(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
    })
}

/// Reads the options of a watch. `name` is the one that was authorized, by the path or by the selector; empty where there is
/// none.
///
/// # Errors
/// A selector that requests other names too.
pub fn watch(query: &Query, name: &str) -> Result<WatchOptions, RegistryError> {
    let mut raw = raw(query)?;
    default_watch(&mut raw, query);
    // By a `/watch/` path upstream checks what a list may request.
    let problems = match query.boolean("watch") {
        true => check_watch(&raw),
        false => check_list(&raw),
    };
    if !problems.is_empty() {
        return Err(RegistryError::invalid_options("ListOptions", problems));
    }
    let since = plain_revision(raw.resource_version)?;
    Ok(WatchOptions {
        predicate: predicate(query, name)?,
        since,
        bookmarks: query.boolean("allowWatchBookmarks"),
        send_initial_events: raw.send_initial_events,
        timeout: raw.timeout_seconds.and_then(watch_timeout),
    })
}

/// A watch from the beginning requests the state and for its end (upstream's `SetListOptionsDefaults`); one by a `/watch/`
/// path does not.
fn default_watch(raw: &mut Raw<'_>, query: &Query) {
    let says_nothing = raw.send_initial_events.is_none() && raw.resource_version_match.is_empty();
    if says_nothing && matches!(raw.resource_version, "" | "0") && query.boolean("watch") {
        raw.send_initial_events = Some(true);
        raw.resource_version_match = NOT_OLDER_THAN;
    }
}

fn raw(query: &Query) -> Result<Raw<'_>, RegistryError> {
    Ok(Raw {
        resource_version: query.get("resourceVersion").unwrap_or_default(),
        resource_version_match: query.get("resourceVersionMatch").unwrap_or_default(),
        continue_token: query.get("continue").unwrap_or_default(),
        limit: integer(query, "limit")?.unwrap_or(0),
        timeout_seconds: integer(query, "timeoutSeconds")?,
        send_initial_events: query
            .get("sendInitialEvents")
            .map(|_| query.boolean("sendInitialEvents")),
    })
}

fn integer(query: &Query, name: &str) -> Result<Option<i64>, RegistryError> {
    query.get(name).map(parse_int).transpose()
}

/// A number as Go's `strconv.ParseInt` reads one, an empty text being none.
///
/// # Errors
/// What Go says of a text that is none, or of one out of range.
pub fn parse_int(text: &str) -> Result<i64, RegistryError> {
    text.parse().map_err(|error: ParseIntError| {
        let problem = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        RegistryError::BadRequest(format!("strconv.ParseInt: parsing {text:?}: {problem}"))
    })
}

/// Of seconds, as upstream counts them: 0 says nothing, what is below ends at once, and so does what is too much for Go's
/// durations.
fn watch_timeout(seconds: i64) -> Option<Duration> {
    const NANOSECONDS: i64 = 1_000_000_000;
    match seconds.wrapping_mul(NANOSECONDS) {
        0 => None,
        nanoseconds => Some(Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))),
    }
}

fn check_list(raw: &Raw<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let path = FieldPath::new("resourceVersionMatch");
    let wanted = raw.resource_version_match;
    if !wanted.is_empty() {
        if raw.resource_version.is_empty() {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            problems.push(FieldError::forbidden(&path, detail));
        }
        if !raw.continue_token.is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            problems.push(FieldError::forbidden(&path, detail));
        }
        if wanted != EXACT && wanted != NOT_OLDER_THAN {
            problems.push(FieldError::not_supported(
                &path,
                wanted,
                &[EXACT, NOT_OLDER_THAN, ""],
            ));
        }
        if wanted == EXACT && raw.resource_version == "0" {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            problems.push(FieldError::forbidden(&path, detail));
        }
    }
    if raw.send_initial_events.is_some() {
        let path = FieldPath::new("sendInitialEvents");
        problems.push(FieldError::forbidden(
            &path,
            "sendInitialEvents is forbidden for list",
        ));
    }
    problems
}

fn check_watch(raw: &Raw<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let path = FieldPath::new("resourceVersionMatch");
    let wanted = raw.resource_version_match;
    if raw.send_initial_events.is_some() && wanted != NOT_OLDER_THAN {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        problems.push(FieldError::forbidden(&path, detail));
    }
    if !wanted.is_empty() {
        if raw.send_initial_events.is_none() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            problems.push(FieldError::forbidden(&path, detail));
        }
        if wanted != NOT_OLDER_THAN {
            problems.push(FieldError::not_supported(&path, wanted, &[NOT_OLDER_THAN]));
        }
        if !raw.continue_token.is_empty() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            problems.push(FieldError::forbidden(&path, detail));
        }
    }
    problems
}

fn predicate(query: &Query, name: &str) -> Result<Predicate, RegistryError> {
    let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default())
        .map_err(|error| RegistryError::BadRequest(error.to_string()))?;
    let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())
        .map_err(|error| RegistryError::BadRequest(error.to_string()))?;
    // A watch of one name by path (`/api/v1/watch/…/pods/x`) is a watch with a selector. Authorization saw the name.
    let fields = match fields.required("metadata.name") {
        _ if name.is_empty() => fields,
        None if fields.is_everything() => FieldSelector::equals("metadata.name", name),
        Some(own) if own == name => fields,
        _ => {
            let message = "fieldSelector metadata.name doesn't match requested name";
            return Err(RegistryError::BadRequest(message.to_owned()));
        }
    };
    Ok(Predicate { labels, fields })
}

/// Reads the options of a create.
pub fn create(query: &Query) -> Result<CreateOptions, RegistryError> {
    let common = common(query, "CreateOptions")?;
    Ok(CreateOptions {
        dry_run: common.dry_run,
        field_manager: common.field_manager,
        field_validation: common.field_validation,
        addressed: false,
    })
}

/// Reads the options of an update (`UpdateOptions`) or patch (`PatchOptions`).
pub fn update(query: &Query, kind: &str) -> Result<UpdateOptions, RegistryError> {
    let common = common(query, kind)?;
    Ok(UpdateOptions {
        dry_run: common.dry_run,
        field_manager: common.field_manager,
        field_validation: common.field_validation,
        force: query.boolean("force"),
        create_missing: false,
    })
}

/// Options of patch; an apply names its manager, and only an apply can be forced.
pub fn patch(query: &Query, apply: bool) -> Result<UpdateOptions, RegistryError> {
    let mut options = update(query, "PatchOptions")?;
    let problem = match (apply, query.get("force")) {
        (true, _) if options.field_manager.is_empty() => {
            FieldError::required(&FieldPath::new("fieldManager"), "is required for apply patch")
        }
        (false, Some(_)) => FieldError::forbidden(
            &FieldPath::new("force"),
            "may not be specified for non-apply patch",
        ),
        _ => {
            options.create_missing = apply;
            return Ok(options);
        }
    };
    Err(RegistryError::invalid_options("PatchOptions", vec![problem]))
}

struct Common {
    dry_run: bool,
    field_manager: String,
    field_validation: FieldValidation,
}

fn common(query: &Query, kind: &str) -> Result<Common, RegistryError> {
    let mut problems = Vec::new();
    let field_manager = query.get("fieldManager").unwrap_or_default();
    check_field_manager(field_manager, &mut problems);
    let dry_run = dry_run(query.all("dryRun"), &mut problems);
    let field_validation = match query.get("fieldValidation").unwrap_or_default() {
        "" | "Warn" => FieldValidation::Warn,
        "Ignore" => FieldValidation::Ignore,
        "Strict" => FieldValidation::Strict,
        other => {
            let path = FieldPath::new("fieldValidation");
            problems.push(FieldError::not_supported(
                &path,
                other,
                &["", "Ignore", "Strict", "Warn"],
            ));
            FieldValidation::Warn
        }
    };
    if problems.is_empty() {
        Ok(Common {
            dry_run,
            field_manager: field_manager.to_owned(),
            field_validation,
        })
    } else {
        Err(RegistryError::invalid_options(kind, problems))
    }
}

fn check_field_manager(manager: &str, problems: &mut Vec<FieldError>) {
    problems.extend(managed_fields::manager_problems(
        manager,
        &FieldPath::new("fieldManager"),
    ));
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, problems: &mut Vec<FieldError>) -> bool {
    let all: Vec<&str> = values.collect();
    if all.iter().any(|value| *value != "All") {
        let shown: Vec<String> = all.iter().map(|value| format!("{value:?}")).collect();
        let shown = Shown(format!("[{}]", shown.join(",")));
        problems.push(FieldError::not_supported(
            &FieldPath::new("dryRun"),
            shown,
            &["All"],
        ));
    }
    !all.is_empty()
}

/// A `DeleteOptions` as body or query gives it, before checking.
#[derive(Debug, Clone, Default)]
pub struct RawDeleteOptions {
    pub dry_run: Vec<String>,
    pub grace_period_seconds: Option<i64>,
    pub propagation_policy: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// Set where there are preconditions, be they empty.
    pub has_preconditions: bool,
    pub ignore_store_read_error: Option<bool>,
}

const IGNORE_STORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// The refusal of a deletecollection of objects that cannot be read.
pub(crate) fn unreadable_collection() -> RegistryError {
    let detail = "is not allowed with DELETECOLLECTION, try again after removing the option";
    let problem = FieldError::invalid(&FieldPath::new(IGNORE_STORE_READ_ERROR), true, detail);
    RegistryError::invalid_options("DeleteOptions", vec![problem])
}

impl RawDeleteOptions {
    /// Reads the query; a body, where there is one, is used instead.
    pub fn from_query(query: &Query) -> Result<Self, RegistryError> {
        // Preconditions, and none where they are empty (`Convert_url_Values_To_v1_DeleteOptions`).
        let precondition = |name: &str| query.get(name).filter(|own| !own.is_empty());
        let (uid, resource_version) = (precondition("uid"), precondition("resourceVersion"));
        Ok(Self {
            dry_run: query.all("dryRun").map(str::to_owned).collect(),
            grace_period_seconds: integer(query, "gracePeriodSeconds")?,
            propagation_policy: query.get("propagationPolicy").map(str::to_owned),
            orphan_dependents: query
                .get("orphanDependents")
                .map(|_| query.boolean("orphanDependents")),
            uid: uid.map(str::to_owned),
            resource_version: resource_version.map(str::to_owned),
            has_preconditions: uid.or(resource_version).is_some(),
            ignore_store_read_error: query
                .get(IGNORE_STORE_READ_ERROR)
                .map(|_| query.boolean(IGNORE_STORE_READ_ERROR)),
        })
    }

    /// Options that say how an object is deleted, of which nothing is known where it cannot be read.
    fn check_ignoring(&self, problems: &mut Vec<FieldError>) {
        let set = [
            (self.propagation_policy.is_some(), "propagationPolicy"),
            (self.orphan_dependents.is_some(), "orphanDependents"),
            (self.grace_period_seconds.is_some(), "gracePeriodSeconds"),
            (self.has_preconditions, "preconditions"),
        ];
        let ignores = self.ignore_store_read_error == Some(true);
        for (_, name) in set.into_iter().filter(|(is_set, _)| ignores && *is_set) {
            let detail = format!("cannot be set together with .{name}");
            let path = FieldPath::new(IGNORE_STORE_READ_ERROR);
            problems.push(FieldError::invalid(&path, true, detail));
        }
    }

    /// Checks and takes it over.
    pub fn check(self) -> Result<DeleteOptions, RegistryError> {
        let mut problems = Vec::new();
        let path = FieldPath::new("propagationPolicy");
        let policy = self.propagation_policy.as_deref();
        if let (Some(policy), Some(_)) = (policy, self.orphan_dependents) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            problems.push(FieldError::invalid(&path, policy, detail));
        }
        let propagation = match policy {
            None => None,
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                problems.push(FieldError::not_supported(&path, other, &supported));
                None
            }
        };
        let dry_run = dry_run(self.dry_run.iter().map(String::as_str), &mut problems);
        self.check_ignoring(&mut problems);
        if !problems.is_empty() {
            return Err(RegistryError::invalid_options("DeleteOptions", problems));
        }
        Ok(DeleteOptions {
            dry_run,
            grace_period_seconds: self.grace_period_seconds,
            propagation,
            orphan_dependents: self.orphan_dependents,
            preconditions: Preconditions {
                uid: self.uid.map(Uid),
                resource_version: self.resource_version,
            },
            unreadable: self.ignore_store_read_error == Some(true),
            of_collection: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &str) {
        let found = match list(&Query::parse(query), "") {
            Ok(options) => format!("{:?} {}", options.revision, options.limit),
            Err(error) => crate::status::of(&error).message,
        };
        assert_eq!(found, expected, "{query}");
    }

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        for (query, expected) in [
            ("limit=", r#"strconv.ParseInt: parsing "": invalid syntax"#),
            ("limit=x", r#"strconv.ParseInt: parsing "x": invalid syntax"#),
            (
                "timeoutSeconds=9223372036854775808",
                r#"strconv.ParseInt: parsing "9223372036854775808": value out of range"#,
            ),
            ("limit=%2B5", "MostRecent 5"),
            ("limit=-1", "MostRecent 0"),
        ] {
            check(query, expected);
        }
    }

    #[test]
    fn watch_lasts_as_long_as_go_counts() {
        for (seconds, expected) in [
            ("0", None),
            ("5", Some(5)),
            ("-1", Some(0)),
            ("10000000000", Some(0)),
        ] {
            let options = watch(&Query::parse(&format!("watch=1&timeoutSeconds={seconds}")), "").unwrap();
            assert_eq!(options.timeout, expected.map(Duration::from_secs), "{seconds}");
        }
    }

    /// Upstream checks by what `watch` says, whatever the path.
    #[test]
    fn watch_by_path_may_ask_for_what_a_list_may() {
        let problem = |query| {
            watch(&Query::parse(query), "")
                .err()
                .map(|error| crate::status::of(&error).message)
        };
        assert_eq!(problem("resourceVersion=5&resourceVersionMatch=Exact"), None);
        let refused = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list";
        let asked = "sendInitialEvents=true&resourceVersion=5&resourceVersionMatch=NotOlderThan";
        assert_eq!(problem(asked).as_deref(), Some(refused));
        assert_eq!(problem(&format!("watch=1&{asked}")), None);
    }

    #[test]
    fn watch_from_the_beginning_asks_for_the_state() {
        let refused = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
        for (query, expected) in [
            ("watch=1", "Some(true)"),
            ("watch=1&resourceVersion=0", "Some(true)"),
            ("watch=1&resourceVersion=5", "None"),
            ("", "None"),
            (
                "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
                "Some(false)",
            ),
            ("watch=1&continue=x", refused),
        ] {
            let found = match watch(&Query::parse(query), "") {
                Ok(options) => format!("{:?}", options.send_initial_events),
                Err(error) => crate::status::of(&error).message,
            };
            assert_eq!(found, expected, "{query}");
        }
    }

    #[test]
    fn watch_of_a_name_is_of_that_name_alone() {
        let doubted = "fieldSelector metadata.name doesn't match requested name";
        for (query, expected) in [
            ("", "metadata.name=a"),
            ("fieldSelector=", "metadata.name=a"),
            ("fieldSelector=metadata.name%3Da", "metadata.name=a"),
            ("fieldSelector=metadata.name!%3Dzz", doubted),
            ("fieldSelector=metadata.namespace%3Dn", doubted),
            ("fieldSelector=metadata.name%3Db", doubted),
        ] {
            let found = match watch(&Query::parse(query), "a") {
                Ok(options) => options.predicate.fields.to_string(),
                Err(error) => crate::status::of(&error).message,
            };
            assert_eq!(found, expected, "{query}");
        }
    }

    #[test]
    fn lists() {
        check("", "MostRecent 0");
        check("resourceVersion=0&limit=500", "Any 500");
        check("resourceVersion=7&limit=2", "Limited(Revision(7)) 2");
        check(
            "resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=2",
            "NotOlderThan(Revision(7)) 2",
        );
        check(
            "resourceVersionMatch=Exact",
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
    }
}
