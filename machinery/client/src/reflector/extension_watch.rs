//! Watches that an API extension answers.

use crate::error::ClientError;
use machinery_runtime::{AnswerRoom, HeldRoom, WatchPlace};

/// A watch that an API extension answers: its place, and the room of a line that is not complete.
pub(super) struct ExtensionWatch {
    room: AnswerRoom,
    line: HeldRoom,
    _place: WatchPlace,
}

impl ExtensionWatch {
    pub(super) fn of(room: AnswerRoom) -> Result<Self, ClientError> {
        let parts = room.hold(0).zip(room.watch());
        let (line, _place) = parts.ok_or_else(|| ClientError::NoRoom(room.clone()))?;
        Ok(Self { room, line, _place })
    }

    pub(super) fn keep(&mut self, bytes: usize) -> Result<(), ClientError> {
        match self.line.resize(bytes) {
            true => Ok(()),
            false => Err(ClientError::NoRoom(self.room.clone())),
        }
    }
}
