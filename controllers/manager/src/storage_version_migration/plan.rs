//! Decides what a migration does next. Pure.

use super::view::MigrationView;
use crate::views::created;
use machinery_client::Object;
use std::sync::Arc;

pub(super) type MigrationRef = Arc<Object<MigrationView>>;

/// The next step of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It is over, or another of its resource comes first.
    Nothing,
    /// It begins to run.
    Begin,
    /// It notes the newest revision.
    NoteRevision,
    /// It writes objects anew.
    Migrate,
    /// It is over and runs no more.
    Finish,
}

/// Decides on a migration; `all` has the others of its resource too.
pub(super) fn next(own: &MigrationRef, all: &[MigrationRef]) -> Step {
    match (own.is("Running"), own.is_over()) {
        (true, true) => Step::Finish,
        (false, true) => Step::Nothing,
        (true, false) if own.noted.is_empty() => Step::NoteRevision,
        (true, false) => Step::Migrate,
        (false, false) if is_first(own, all) => Step::Begin,
        (false, false) => Step::Nothing,
    }
}

/// Reports whether none of its resource runs and it is the oldest of those that wait.
fn is_first(own: &MigrationRef, all: &[MigrationRef]) -> bool {
    let order = |own: &MigrationRef| (created(&own.header), own.name().to_owned());
    let mut others = all
        .iter()
        .filter(|other| other.resource == own.resource && other.uid() != own.uid());
    others.all(|other| !other.is("Running") && (other.is_over() || order(own) < order(other)))
}

/// The message of a migration that runs: of so many objects these are not written yet.
pub(super) fn running(left: usize, all: usize, error: Option<&str>) -> String {
    let mut message = "The migration is running".to_owned();
    match (left, all) {
        (_, 0) => {}
        (0, all) => message.push_str(&format!(", {all} objects verified migrated")),
        (left, all) => message.push_str(&format!(", {left}/{all} objects not yet migrated")),
    }
    if let Some(error) = error {
        message.push_str(&format!("; transient error: {error}"));
    }
    message
}
