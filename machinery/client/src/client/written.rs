//! Answers to writes, read no further than callers need.

use crate::object::parse_header;
use bytes::Bytes;
use machinery_meta::{Revision, SharedEvent};

/// Answer to a write.
#[derive(Debug, Clone)]
pub struct Written(Answer);

#[derive(Debug, Clone)]
enum Answer {
    Shared(Revision),
    Body(Bytes),
}

impl Written {
    pub(super) fn of_event(event: SharedEvent) -> Self {
        Self(match event {
            SharedEvent::Set(object) | SharedEvent::Gone(object) => Answer::Shared(object.revision),
            SharedEvent::Reached { revision, .. } => Answer::Shared(revision),
            SharedEvent::Line(line) => Answer::Body(line),
        })
    }

    /// The answer of a server that sends what it has written.
    pub fn of_answer(body: impl Into<Bytes>) -> Self {
        Self(Answer::Body(body.into()))
    }

    /// The revision of the object, where the answer is one.
    pub fn revision(&self) -> Option<Revision> {
        match &self.0 {
            Answer::Shared(revision) => Some(*revision),
            Answer::Body(body) => parse_header(body).ok().map(|(_, revision)| revision),
        }
    }
}
