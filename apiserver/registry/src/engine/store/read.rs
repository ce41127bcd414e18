//! Get and list: revisions, predicates, pages.

use super::Store;
use crate::engine::continue_token::{ContinueToken, INCONSISTENT_CONTINUE_MESSAGE};
use crate::engine::error::RegistryError;
use crate::engine::options::{ListOptions, RevisionMatch};
use crate::engine::scope::Scope;
use apiserver_storage::{Entry, Key, Prefix, RangeOptions, ReadAt, StorageError};
use machinery_meta::Revision;
use std::sync::Arc;

/// One page of a list.
#[derive(Debug, Default)]
pub struct ListPage {
    pub entries: Vec<Arc<Entry>>,
    pub revision: Revision,
    /// Empty on the last page.
    pub continue_token: String,
    /// Number of objects that follow, if known without reading them (no selectors).
    pub remaining: Option<u64>,
    /// Entries that were read for it, whether they are on it or not.
    pub fetched: usize,
}

impl ListPage {
    /// Bytes of its objects as they are stored.
    pub fn record_bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.record.len()).sum()
    }
}

/// A list at a revision that history no longer has.
const LIST_TOO_OLD_MESSAGE: &str = "The resourceVersion for the provided list is too old.";
/// Objects that are looked at in one go with a selector and a limit.
pub(super) const SCAN_PAGE: usize = 1_000;

/// The part of the collection that a page is taken from.
struct Span {
    at: ReadAt,
    /// The page begins with the first key after this one.
    after: Option<Key>,
    /// The span was opened by a continue token.
    continued: bool,
}

impl Store {
    /// One object.
    pub async fn get(
        &self,
        scope: &Scope,
        name: &str,
        revision: RevisionMatch,
    ) -> Result<Arc<Entry>, RegistryError> {
        let key = self.key(scope, name)?;
        let found = self
            .storage()
            .get(&key, read_at(revision))
            .await
            .map_err(|error| self.storage_error(&error))?;
        let entry = self.shown_if(found.entry).await?;
        entry.ok_or_else(|| RegistryError::not_found(&self.row.group_resource(), name))
    }

    /// A page of the collection, of one namespace or of all.
    pub async fn list(&self, scope: &Scope, options: &ListOptions) -> Result<ListPage, RegistryError> {
        if let Some(page) = self.list_by_name(scope, options).await? {
            return Ok(page);
        }
        let prefix = self.prefix(scope)?;
        let span = span(&prefix, options)?;
        self.collect(&prefix, span, options).await
    }

    /// A list that can have one item only is a get.
    async fn list_by_name(
        &self,
        scope: &Scope,
        options: &ListOptions,
    ) -> Result<Option<ListPage>, RegistryError> {
        let Some(name) = options.predicate.fields.required("metadata.name") else {
            return Ok(None);
        };
        // Invariant: a selector narrows the scope of the address and never leaves it. Only a list over all namespaces
        // takes its namespace from the selector.
        let selected = options.predicate.fields.required("metadata.namespace");
        let namespace = match self.place(scope)? {
            "" => selected.unwrap_or_default(),
            own => own,
        };
        let known_place = !self.row.namespaced || !namespace.is_empty();
        let Ok(key) = Key::parse(&self.row.key(namespace, name)) else {
            return Ok(None);
        };
        if !known_place || name.is_empty() || name.contains('/') {
            return Ok(None);
        }
        // Upstream looks at neither the limit nor the token of such a list.
        let at = match options.revision {
            RevisionMatch::Limited(revision) => RevisionMatch::NotOlderThan(revision),
            other => other,
        };
        let found = match self.storage().get(&key, read_at(at)).await {
            Ok(found) => found,
            Err(StorageError::Compacted { .. }) => return Err(list_too_old()),
            Err(error) => return Err(self.storage_error(&error)),
        };
        let matching = |entry: &Arc<Entry>| options.predicate.matches(&entry.record.header);
        let found_entry = self.shown_if(found.entry).await?;
        let fetched = usize::from(found_entry.is_some());
        let entries: Vec<Arc<Entry>> = found_entry.into_iter().filter(matching).collect();
        Ok(Some(ListPage {
            entries,
            revision: found.revision,
            fetched,
            ..ListPage::default()
        }))
    }

    async fn collect(
        &self,
        prefix: &Prefix,
        span: Span,
        options: &ListOptions,
    ) -> Result<ListPage, RegistryError> {
        let everything = options.predicate.is_everything();
        let per_scan = match options.limit {
            0 => 0,
            limit if everything => limit,
            limit => limit.max(SCAN_PAGE),
        };
        let mut page = ListPage::default();
        let mut range = RangeOptions {
            at: span.at,
            start_after: span.after.clone(),
            limit: per_scan,
        };
        loop {
            let found = match self.storage().range(prefix, &range).await {
                Ok(found) => found,
                Err(error) => return Err(self.list_error(prefix, &error, &span, range.start_after.as_ref())),
            };
            page.revision = found.revision;
            range.at = ReadAt::Exact(found.revision);
            let total = found.entries.len();
            page.fetched += total;
            for (at, entry) in self.shown(found.entries).await?.into_iter().enumerate() {
                range.start_after = Some(entry.key.clone());
                if !everything && !options.predicate.matches(&entry.record.header) {
                    continue;
                }
                page.entries.push(entry);
                if options.limit > 0 && page.entries.len() == options.limit {
                    let left = found.remaining + (total - at - 1) as u64;
                    turn_page(prefix, &mut page, range.start_after.as_ref(), left, everything);
                    return Ok(page);
                }
            }
            if found.remaining == 0 || total == 0 {
                return Ok(page);
            }
        }
    }

    /// Compacted: a continued list gets a token with which it can go on at the newest state.
    fn list_error(
        &self,
        prefix: &Prefix,
        error: &StorageError,
        span: &Span,
        after: Option<&Key>,
    ) -> RegistryError {
        match error {
            StorageError::Compacted { .. } if span.continued => {
                let start = after.and_then(|key| key.below(prefix)).unwrap_or_default();
                let fresh = ContinueToken::new(-1, format!("{start}\0")).encode();
                RegistryError::Expired {
                    message: INCONSISTENT_CONTINUE_MESSAGE.into(),
                    fresh_continue: Some(fresh),
                }
            }
            StorageError::Compacted { .. } => list_too_old(),
            other => self.storage_error(other),
        }
    }
}

fn list_too_old() -> RegistryError {
    RegistryError::Expired {
        message: LIST_TOO_OLD_MESSAGE.into(),
        fresh_continue: None,
    }
}

fn read_at(revision: RevisionMatch) -> ReadAt {
    match revision {
        RevisionMatch::MostRecent => ReadAt::Latest,
        // From memory, as upstream's watch cache: also while etcd is away.
        RevisionMatch::Any => ReadAt::NotBefore(Revision::ZERO),
        RevisionMatch::NotOlderThan(revision) => ReadAt::NotBefore(revision),
        RevisionMatch::Exact(revision) | RevisionMatch::Limited(revision) => ReadAt::Exact(revision),
    }
}

fn span(prefix: &Prefix, options: &ListOptions) -> Result<Span, RegistryError> {
    if options.continue_token.is_empty() {
        return Ok(Span {
            at: read_at(options.revision),
            after: None,
            continued: false,
        });
    }
    let token = ContinueToken::decode(&options.continue_token).map_err(RegistryError::BadRequest)?;
    if !matches!(options.revision, RevisionMatch::MostRecent | RevisionMatch::Any) {
        let message = "specifying resource version is not allowed when using continue";
        return Err(RegistryError::BadRequest(message.to_owned()));
    }
    let at = u64::try_from(token.resource_version).map_or(ReadAt::Latest, |r| ReadAt::Exact(Revision(r)));
    // Upstream's tokens name the first key to send, which is the last one sent and a zero byte.
    let last = format!("{prefix}{}", token.start_key.trim_end_matches('\0'));
    let after = Key::parse(&last)
        .map_err(|_| RegistryError::BadRequest(format!("continue key is not valid: {}", token.start_key)))?;
    Ok(Span {
        at,
        after: Some(after),
        continued: true,
    })
}

/// More follows: say where, and how much when nothing is filtered.
fn turn_page(prefix: &Prefix, page: &mut ListPage, last: Option<&Key>, left: u64, everything: bool) {
    if left == 0 {
        return;
    }
    let relative = last.and_then(|key| key.below(prefix)).unwrap_or_default();
    let revision = i64::try_from(page.revision.0).unwrap_or(i64::MAX);
    page.continue_token = ContinueToken::new(revision, format!("{relative}\0")).encode();
    page.remaining = everything.then_some(left);
}
