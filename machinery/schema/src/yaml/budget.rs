//! Bounds of the work that a document makes the parser of YAML do, in proportion to its bytes.

use serde_saphyr::budget::{BudgetBreach, EnforcingPolicy, check_yaml_budget};
use serde_saphyr::{Budget, DuplicateKeyPolicy, Error, Options};

/// Go's parser says so of a document that aliases make too much of.
pub(super) const EXCESSIVE: &str = "document contains excessive aliasing";

/// YAML nests less deep than JSON may: its parser needs more stack for each level.
const MAX_DEPTH: usize = 64;
/// Every merge (`<<`) reads the maps that it takes in once more, and those within them for every level again.
const MAX_MERGES: usize = 256;
/// Depth of a document with merges, and number of its maps, lists and scalars: the parser's work grows with these and
/// with the square of that depth.
const MAX_MERGED_DEPTH: usize = 32;
const MAX_MERGED_NODES: usize = 4_096;
/// Events that aliases may repeat and anchors may keep whatever the document's size.
const FREE_EVENTS: usize = 1_024;
/// Bytes that anchors may keep whatever the document's size.
const FREE_BYTES: usize = 1 << 20;

pub(super) fn options(text: &str, max_expanded: usize, duplicate_keys: DuplicateKeyPolicy) -> Options {
    let events = FREE_EVENTS + 8 * text.len();
    let (depth, nodes) = match has_merges(text) {
        true => (MAX_MERGED_DEPTH, MAX_MERGED_NODES),
        false => (MAX_DEPTH, Budget::default().max_nodes),
    };
    let budget = serde_saphyr::budget! {
        max_depth: depth,
        max_nodes: nodes,
        max_total_scalar_bytes: max_expanded,
        max_merge_keys: MAX_MERGES,
        max_recorded_anchor_events: events,
        max_recorded_anchor_bytes: FREE_BYTES + 8 * text.len(),
    };
    serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        with_snippet: false,
        budget: budget,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: events },
    }
}

/// Reports whether a key of the document merges; a document that cannot be scanned to its end may have such keys.
fn has_merges(text: &str) -> bool {
    if !text.contains("<<") {
        return false;
    }
    let scanned = check_yaml_budget(text, Budget::default(), EnforcingPolicy::AllContent);
    scanned.map_or(true, |report| report.merge_keys > 0 || report.breached.is_some())
}

/// Reports whether a document was refused for the result of its aliases and merges.
pub(super) fn is_breach(error: &Error) -> bool {
    match error {
        Error::AliasError { error, .. } | Error::WithSnippet { error, .. } => is_breach(error),
        Error::AliasReplayLimitExceeded { .. } | Error::AliasReplayStackDepthExceeded { .. } => true,
        Error::Budget { breach, .. } => !matches!(breach, BudgetBreach::Depth { .. }),
        _ => false,
    }
}
