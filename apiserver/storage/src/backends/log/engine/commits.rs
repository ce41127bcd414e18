//! Writes, from their callers' side: taken up within bounds, submitted to the writer, answered.

use super::{Engine, QUEUE_UNITS};
use crate::backends::log::writer::{Admitted, Submitted};
use crate::write::{SpaceEffect, check_group};
use crate::{Claim, Event, StorageError, Write};
use machinery_meta::Revision;
use std::sync::Arc;

/// Unit of the queue of writes.
pub(super) const QUEUE_UNIT_BYTES: usize = 1024;
/// A deletion is tried so often on a full disk.
const REFUSED_AT_MOST: usize = 3;

impl Engine {
    pub(crate) async fn commit(
        self: &Arc<Self>,
        claim: Claim,
        group: Vec<Write>,
    ) -> Result<Vec<Arc<Event>>, StorageError> {
        let done = self.commit_within_reserve(claim, group).await;
        done.map_err(|error| self.readable_conflict(error))
    }

    async fn commit_within_reserve(
        self: &Arc<Self>,
        claim: Claim,
        group: Vec<Write>,
    ) -> Result<Vec<Arc<Event>>, StorageError> {
        let bytes = check_group(&group)?;
        let frees = SpaceEffect::of(&group);
        if frees == SpaceEffect::Nothing {
            return self.commit_once(claim, group, bytes, frees).await;
        }
        // The batch that a full disk refuses takes deletions with it; they are tried again in the reserve.
        for _ in 1..REFUSED_AT_MOST {
            match self.commit_once(claim, group.clone(), bytes, frees).await {
                Err(StorageError::NoSpace) => {}
                answer => return answer,
            }
        }
        self.commit_once(claim, group, bytes, frees).await
    }

    async fn commit_once(
        self: &Arc<Self>,
        claim: Claim,
        group: Vec<Write>,
        bytes: usize,
        frees: SpaceEffect,
    ) -> Result<Vec<Arc<Event>>, StorageError> {
        self.has_disk_for(frees)?;
        let units =
            u32::try_from((bytes / QUEUE_UNIT_BYTES + 1).min(QUEUE_UNITS)).expect("bounded by the queue");
        let closed = |_| StorageError::Unavailable("storage is closed".to_owned());
        let permit = Arc::clone(&self.queue)
            .acquire_many_owned(units)
            .await
            .map_err(closed)?;
        let now = self.expiries.wall(&self.runtime);
        let admitted = Admitted {
            group,
            bytes,
            claim,
            permit,
        };
        let submitted = {
            let encryption = self.options.encryption.as_ref();
            // Lock order: encryption, writer, live.
            let _unchanged = encryption.map(|encryption| encryption.hold());
            let mut writer = self.writer.lock();
            let live = self.live.read();
            writer.submit(&live.root, admitted, now)
        };
        let (done, answer) = match submitted {
            Submitted::Now(answer) => return answer,
            Submitted::After(done, answer) => (done, answer),
        };
        self.flush();
        let ended = done.await;
        ended.map_err(|_| StorageError::Unavailable("storage stopped".to_owned()))??;
        answer
    }

    fn has_disk_for(&self, frees: SpaceEffect) -> Result<(), StorageError> {
        let room = &self.files.room;
        let taken = match frees {
            SpaceEffect::Now => true,
            SpaceEffect::Soon => !room.is_full() || room.has_enough(),
            SpaceEffect::Nothing => !room.is_full(),
        };
        if taken {
            return Ok(());
        }
        room.count_refused();
        Err(StorageError::NoSpace)
    }

    fn readable_conflict(&self, error: StorageError) -> StorageError {
        match error {
            StorageError::Conflict {
                index,
                key,
                current: Some(current),
            } => match self.readable(&current) {
                Ok(current) => StorageError::Conflict {
                    index,
                    key,
                    current: Some(current),
                },
                Err(error) => error,
            },
            other => other,
        }
    }

    pub(crate) async fn raise_floor(self: &Arc<Self>, floor: Revision) -> Result<(), StorageError> {
        let mut answer = Err(StorageError::NoSpace);
        for _ in 0..REFUSED_AT_MOST {
            if !matches!(answer, Err(StorageError::NoSpace)) {
                break;
            }
            let done = self.writer.lock().submit_floor(floor)?;
            self.flush();
            answer = done
                .await
                .map_err(|_| StorageError::Unavailable("storage stopped".to_owned()))?;
        }
        answer
    }
}
