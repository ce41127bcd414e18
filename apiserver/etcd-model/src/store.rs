//! Keys at every revision since the last compaction, as one member has them. Decides nothing by itself: the same
//! commands in the same order give every member the same state.

use crate::messages::{
    Compare, CompareResult, DeleteRequest, DeleteResponse, Event, EventType, KeyValue, PutRequest,
    PutResponse, RangeRequest, RangeResponse, Request, RequestOp, Response, ResponseOp, Target, TxnRequest,
    TxnResponse, header,
};
use crate::refusals;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use tonic::Status;

/// A command that all members apply, in one order.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Txn(TxnRequest),
    Compact(i64),
    Grant(i64),
    Revoke(i64),
}

#[derive(Debug)]
pub(crate) struct Store {
    revision: i64,
    compacted: i64,
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
    /// Changes of each revision, from the compacted one on.
    history: BTreeMap<i64, Vec<Event>>,
    /// The keys that go with a lease.
    leases: BTreeMap<i64, BTreeSet<Vec<u8>>>,
}

/// The value of a key at a revision; `None` if it was deleted.
#[derive(Debug)]
struct Version {
    revision: i64,
    kv: Option<KeyValue>,
}

/// `--max-txn-ops`, the default.
const MAX_TXN_OPERATIONS: usize = 128;

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            revision: 1,
            compacted: -1,
            keys: BTreeMap::new(),
            history: BTreeMap::new(),
            leases: BTreeMap::new(),
        }
    }

    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    pub(crate) fn compacted(&self) -> i64 {
        self.compacted
    }

    /// Changes of each revision, from this one on.
    pub(crate) fn changes_from(&self, revision: i64) -> impl Iterator<Item = (i64, &[Event])> {
        let changes = self.history.range(revision..);
        changes.map(|(revision, events)| (*revision, &events[..]))
    }

    /// Applies a command and returns the answer of a transaction; other commands return only an error or success.
    pub(crate) fn apply(&mut self, command: &Command) -> Result<TxnResponse, Status> {
        match command {
            Command::Txn(request) => return self.txn(request),
            Command::Compact(revision) => self.compact(*revision)?,
            Command::Grant(lease) => {
                self.leases.entry(*lease).or_default();
            }
            Command::Revoke(lease) => self.revoke(*lease),
        }
        Ok(TxnResponse {
            header: header(self.revision),
            ..TxnResponse::default()
        })
    }

    /// The value of a key at a revision, without regard to compaction.
    fn find(&self, key: &[u8], at: i64) -> Option<&KeyValue> {
        let versions = self.keys.get(key)?;
        let version = versions.iter().rfind(|version| version.revision <= at)?;
        version.kv.as_ref()
    }

    /// The value just before a change, as etcd finds it for a watch; `None` if it has been compacted.
    pub(crate) fn before(&self, event: &Event) -> Option<KeyValue> {
        let kv = event.kv.as_ref()?;
        let at = kv.mod_revision - 1;
        if at < self.compacted {
            return None;
        }
        self.find(&kv.key, at).cloned()
    }

    fn within(&self, key: &[u8], end: &[u8], at: i64) -> Vec<&KeyValue> {
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = match end {
            [] => return self.find(key, at).into_iter().collect(),
            [0] => (Bound::Included(key), Bound::Unbounded),
            end if end <= key => return Vec::new(),
            end => (Bound::Included(key), Bound::Excluded(end)),
        };
        let keys = self.keys.range::<[u8], _>(bounds);
        keys.filter_map(|(key, _)| self.find(key, at)).collect()
    }

    pub(crate) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Status> {
        self.range_as_of(request, self.revision)
    }

    fn range_as_of(&self, request: &RangeRequest, now: i64) -> Result<RangeResponse, Status> {
        let known = RangeRequest {
            key: request.key.clone(),
            range_end: request.range_end.clone(),
            limit: request.limit,
            revision: request.revision,
            count_only: request.count_only,
            ..RangeRequest::default()
        };
        if *request != known {
            return Err(refusals::unknown_here("an option of a range"));
        }
        let at = if request.revision <= 0 {
            now
        } else {
            request.revision
        };
        if request.key.is_empty() {
            return Err(refusals::no_key());
        } else if at > now {
            return Err(refusals::future());
        } else if at < self.compacted {
            return Err(refusals::compacted());
        }
        let found = self.within(&request.key, &request.range_end, at);
        let count = found.len();
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0);
        let returned = if request.count_only {
            0
        } else {
            limit.unwrap_or(count)
        };
        Ok(RangeResponse {
            header: header(now),
            kvs: found.into_iter().take(returned).cloned().collect(),
            more: !request.count_only && count > returned,
            count: i64::try_from(count).unwrap_or(i64::MAX),
        })
    }

    fn txn(&mut self, request: &TxnRequest) -> Result<TxnResponse, Status> {
        if [
            request.compare.len(),
            request.success.len(),
            request.failure.len(),
        ]
        .iter()
        .any(|operations| *operations > MAX_TXN_OPERATIONS)
        {
            return Err(refusals::too_many_operations());
        }
        let mut succeeded = true;
        for compare in &request.compare {
            succeeded &= self.holds(compare)?;
        }
        for branch in [&request.success, &request.failure] {
            check_form(branch)?;
        }
        let branch = if succeeded {
            &request.success
        } else {
            &request.failure
        };
        self.check_leases(branch)?;
        let (next, mut changes) = (self.revision + 1, Vec::new());
        let responses: Result<Vec<_>, Status> = branch
            .iter()
            .map(|operation| self.operate(operation, next, &mut changes))
            .collect();
        let responses = responses?;
        self.happened(next, changes);
        Ok(TxnResponse {
            header: header(self.revision),
            succeeded,
            responses,
        })
    }

    fn happened(&mut self, revision: i64, changes: Vec<Event>) {
        if !changes.is_empty() {
            self.revision = revision;
            self.history.insert(revision, changes);
        }
    }

    fn holds(&self, compare: &Compare) -> Result<bool, Status> {
        if !compare.range_end.is_empty() {
            return Err(refusals::unknown_here("comparisons of ranges"));
        }
        let found = self.find(&compare.key, self.revision);
        let none = KeyValue::default();
        let kv = found.unwrap_or(&none);
        let order = match &compare.union {
            Some(Target::Version(version)) => kv.version.cmp(version),
            Some(Target::CreateRevision(revision)) => kv.create_revision.cmp(revision),
            Some(Target::ModRevision(revision)) => kv.mod_revision.cmp(revision),
            // What is not there has no value that could compare.
            Some(Target::Value(_)) if found.is_none() => return Ok(false),
            Some(Target::Value(value)) => kv.value.cmp(value),
            Some(Target::Lease(lease)) => kv.lease.cmp(lease),
            None => return Err(refusals::unknown_here("a comparison with nothing")),
        };
        Ok(match compare.result() {
            CompareResult::Equal => order == Ordering::Equal,
            CompareResult::Greater => order == Ordering::Greater,
            CompareResult::Less => order == Ordering::Less,
            CompareResult::NotEqual => order != Ordering::Equal,
        })
    }

    fn check_leases(&self, operations: &[RequestOp]) -> Result<(), Status> {
        let missing = operations.iter().any(|operation| match &operation.request {
            Some(Request::Put(put)) => put.lease != 0 && !self.leases.contains_key(&put.lease),
            _ => false,
        });
        if missing {
            Err(refusals::no_lease())
        } else {
            Ok(())
        }
    }

    fn operate(
        &mut self,
        operation: &RequestOp,
        next: i64,
        changes: &mut Vec<Event>,
    ) -> Result<ResponseOp, Status> {
        let now = if changes.is_empty() { self.revision } else { next };
        let response = match &operation.request {
            Some(Request::Range(range)) => Response::Range(self.range_as_of(range, now)?),
            Some(Request::Put(put)) => Response::Put(self.put(put, next, changes)),
            Some(Request::Delete(delete)) => Response::Delete(self.delete(delete, next, changes)),
            Some(Request::Txn(_)) | None => {
                return Err(refusals::unknown_here("transactions in transactions"));
            }
        };
        Ok(ResponseOp {
            response: Some(response),
        })
    }

    fn put(&mut self, put: &PutRequest, revision: i64, changes: &mut Vec<Event>) -> PutResponse {
        let before = self.find(&put.key, revision).cloned();
        let kv = KeyValue {
            key: put.key.clone(),
            create_revision: before.as_ref().map_or(revision, |before| before.create_revision),
            mod_revision: revision,
            version: before.as_ref().map_or(1, |before| before.version + 1),
            value: put.value.clone(),
            lease: put.lease,
        };
        if let Some(before) = &before {
            self.detach(before);
        }
        if let Some(attached) = self.leases.get_mut(&put.lease) {
            attached.insert(put.key.clone());
        }
        let version = Version {
            revision,
            kv: Some(kv.clone()),
        };
        self.keys.entry(put.key.clone()).or_default().push(version);
        changes.push(Event {
            kind: EventType::Put.into(),
            kv: Some(kv),
            prev_kv: None,
        });
        PutResponse {
            header: header(revision),
            prev_kv: before.filter(|_| put.prev_kv),
        }
    }

    fn delete(&mut self, delete: &DeleteRequest, revision: i64, changes: &mut Vec<Event>) -> DeleteResponse {
        let found = self.within(&delete.key, &delete.range_end, revision);
        let gone: Vec<KeyValue> = found.into_iter().cloned().collect();
        for kv in &gone {
            self.erase(kv, revision, changes);
        }
        DeleteResponse {
            header: header(revision),
            deleted: i64::try_from(gone.len()).unwrap_or(i64::MAX),
            prev_kvs: if delete.prev_kv { gone } else { Vec::new() },
        }
    }

    fn erase(&mut self, kv: &KeyValue, revision: i64, changes: &mut Vec<Event>) {
        self.detach(kv);
        let version = Version { revision, kv: None };
        self.keys.entry(kv.key.clone()).or_default().push(version);
        changes.push(Event {
            kind: EventType::Delete.into(),
            kv: Some(KeyValue {
                key: kv.key.clone(),
                mod_revision: revision,
                ..KeyValue::default()
            }),
            prev_kv: None,
        });
    }

    fn detach(&mut self, kv: &KeyValue) {
        if let Some(attached) = self.leases.get_mut(&kv.lease) {
            attached.remove(&kv.key);
        }
    }

    /// All keys of a lease go at one revision, in their order.
    fn revoke(&mut self, lease: i64) {
        let (attached, next) = (self.leases.remove(&lease).unwrap_or_default(), self.revision + 1);
        let mut changes = Vec::new();
        for key in attached {
            if let Some(kv) = self.find(&key, next).cloned() {
                self.erase(&kv, next, &mut changes);
            }
        }
        self.happened(next, changes);
    }

    fn compact(&mut self, revision: i64) -> Result<(), Status> {
        if revision <= self.compacted {
            return Err(refusals::compacted());
        } else if revision > self.revision {
            return Err(refusals::future());
        }
        self.compacted = revision;
        self.history = self.history.split_off(&revision);
        self.keys.retain(|_, versions| {
            let older = versions
                .iter()
                .take_while(|version| version.revision <= revision)
                .count();
            versions.drain(..older.saturating_sub(1));
            versions
                .iter()
                .any(|version| version.kv.is_some() || version.revision >= revision)
        });
        Ok(())
    }
}

/// Refuses the requests that etcd refuses before it reads a key.
fn check_form(operations: &[RequestOp]) -> Result<(), Status> {
    let mut put_keys = BTreeSet::new();
    for operation in operations {
        let key = match &operation.request {
            Some(Request::Range(range)) => &range.key,
            Some(Request::Put(put)) if put.ignore_value || put.ignore_lease => {
                return Err(refusals::unknown_here("puts that keep a part"));
            }
            Some(Request::Put(put)) => {
                if !put_keys.insert(&put.key) {
                    return Err(refusals::duplicate_key());
                }
                &put.key
            }
            Some(Request::Delete(delete)) => &delete.key,
            Some(Request::Txn(_)) | None => {
                return Err(refusals::unknown_here("transactions in transactions"));
            }
        };
        if key.is_empty() {
            return Err(refusals::no_key());
        }
    }
    Ok(())
}
