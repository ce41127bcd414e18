//! Answers that wait for room until other answers of their owner have been read.
//!
//! They report writes that are done, so that they cannot be refused as reads are. Each refers to a version of an object that
//! may be there for this client alone, and is counted for as long as it waits: by account, for ordinary users by namespace as well,
//! and in all. An answer without a place becomes that to a request out of time, and what it refers to is dropped.

use apiserver_registry::{RegistryError, RequestContext, TIME_IS_UP, UserClass};
use futures::future::{self, Either};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

/// Answers of one account. Two accounts fill a namespace's places: one of many leaves the other half to the rest.
const OF_ACCOUNT: Bound = Bound::of(64);
const OF_NAMESPACE: Bound = Bound::of(128);
const OF_ALL: Bound = Bound::of(512);
/// Bytes of the objects that they refer to, for each of them.
const BYTES_OF_ONE: usize = 512 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct WaitingAnswers(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: Count,
    /// By account and by namespace; without entries of owners that wait for nothing.
    owners: HashMap<Arc<str>, Count>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    answers: usize,
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Bound {
    answers: usize,
    bytes: usize,
}

impl Bound {
    const fn of(answers: usize) -> Self {
        Self {
            answers,
            bytes: answers * BYTES_OF_ONE,
        }
    }

    /// Reports whether there is a place; the first answer has one whatever it refers to.
    fn has_place(self, count: Count, bytes: usize) -> bool {
        count.answers == 0 || (count.answers < self.answers && count.bytes + bytes <= self.bytes)
    }
}

impl WaitingAnswers {
    /// Waits for `room`, for an answer that refers to objects of so many bytes. The request goes on among the heavy work, so
    /// that it holds no seat of priority and fairness, and for as long as its client waits for the answer.
    ///
    /// # Errors
    /// [`RegistryError::Timeout`] where there is no place, and where the client has stopped waiting for the answer. Writes that were made
    /// stand, as after any other timeout.
    pub(crate) async fn wait<T>(
        &self,
        ctx: &RequestContext,
        bytes: usize,
        room: impl Future<Output = T>,
    ) -> Result<T, RegistryError> {
        let refused = || {
            let detail = "the answer waits for others that its client has not read";
            RegistryError::Timeout(detail.to_owned())
        };
        let _place = self.place(ctx, bytes).ok_or_else(refused)?;
        ctx.heavy().await.map_err(|_| refused())?;
        match future::select(pin!(room), pin!(ctx.unawaited())).await {
            Either::Left((room, _)) => Ok(room),
            Either::Right(_) => Err(RegistryError::Timeout(TIME_IS_UP.to_owned())),
        }
    }

    fn place(&self, ctx: &RequestContext, bytes: usize) -> Option<Place<'_>> {
        let owners = owners_of(ctx);
        let mut counts = self.0.lock();
        let count = |owner| counts.owners.get(owner).copied().unwrap_or_default();
        let has_place = OF_ALL.has_place(counts.all, bytes)
            && owners
                .iter()
                .all(|(owner, bound)| bound.has_place(count(owner), bytes));
        has_place.then(|| {
            counts.all.add(bytes);
            for (owner, _) in &owners {
                counts.owners.entry(Arc::clone(owner)).or_default().add(bytes);
            }
            Place {
                of: self,
                owners: owners.into_iter().map(|(owner, _)| owner).collect(),
                bytes,
            }
        })
    }
}

impl Count {
    fn add(&mut self, bytes: usize) {
        self.answers += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.answers -= 1;
        self.bytes -= bytes;
    }
}

/// Place of one that waits; dropped, it is free.
struct Place<'a> {
    of: &'a WaitingAnswers,
    owners: Vec<Arc<str>>,
    bytes: usize,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut counts = self.of.0.lock();
        counts.all.remove(self.bytes);
        for owner in &self.owners {
            if let Some(count) = counts.owners.get_mut(owner) {
                count.remove(self.bytes);
                if count.answers == 0 {
                    counts.owners.remove(owner);
                }
            }
        }
    }
}

fn owners_of(ctx: &RequestContext) -> Vec<(Arc<str>, Bound)> {
    let account = format!("account {}", ctx.memory_owner());
    let mut owners = vec![(account.into(), OF_ACCOUNT)];
    if UserClass::of(&ctx.user) == UserClass::Ordinary && !ctx.namespace.is_empty() {
        owners.push((format!("namespace {}", ctx.namespace).into(), OF_NAMESPACE));
    }
    owners
}
