//! Options of each verb, already parsed and checked.

use machinery_meta::{Predicate, Uid};
use std::time::Duration;

/// Treatment of unknown and duplicate fields in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// Options of create.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /// The name stands in the request's address: an update or apply of an object that is not there.
    pub addressed: bool,
}

/// Options of update and patch.
#[derive(Debug, Clone, Default)]
pub struct UpdateOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
    pub force: bool,
    /// A missing object is created, where the kind allows it (or always, for an apply).
    pub create_missing: bool,
}

/// The revision that a read requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RevisionMatch {
    /// The newest state.
    #[default]
    MostRecent,
    /// Any state, however old (`resourceVersion=0`).
    Any,
    NotOlderThan(machinery_meta::Revision),
    Exact(machinery_meta::Revision),
    /// Of a list with a limit and without a match: exactly then, as upstream's old clients expect, and of one name not
    /// older than that.
    Limited(machinery_meta::Revision),
}

/// Options of list.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    pub predicate: Predicate,
    pub revision: RevisionMatch,
    /// Zero for no limit.
    pub limit: usize,
    pub continue_token: String,
}

/// Options of watch.
#[derive(Debug, Clone, Default)]
pub struct WatchOptions {
    pub predicate: Predicate,
    /// `None` when the query has no revision: state first, then changes.
    pub since: Option<machinery_meta::Revision>,
    pub bookmarks: bool,
    pub send_initial_events: Option<bool>,
    pub timeout: Option<Duration>,
}

/// Treatment of an object's dependents when it is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// The object must still be this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    pub uid: Option<Uid>,
    pub resource_version: Option<String>,
}

/// Options of delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    /// The old spelling of `propagation`.
    pub orphan_dependents: Option<bool>,
    pub preconditions: Preconditions,
    /// The delete is of an object that cannot be read, and of no other
    /// (`ignoreStoreReadErrorWithClusterBreakingPotential`).
    pub unreadable: bool,
    /// The object is one of a collection: the request names none.
    pub of_collection: bool,
}
