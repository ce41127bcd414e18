//! Events of a watch in the negotiated form.

use crate::error::ApiError;
use crate::framing::ObjectFrame;
use crate::negotiation::{Format, Representation};
use crate::respond::{self, ResponseOptions};
use crate::status::ApiStatus;
use crate::table;
use apiserver_registry::{Entry, Store, WatchEvent};
use bytes::{BufMut, Bytes, BytesMut};
use machinery_meta::{Revision, SharedEvent, SharedEvents, SharedObject};
use machinery_schema::{Tree, encode_json};
use std::collections::VecDeque;
use std::sync::Arc;

/// Says that the initial state is complete.
const INITIAL_END_ANNOTATION: &str = "k8s.io/initial-events-end";
/// Stored objects from here on are not copied into a frame: their slices follow it.
const SHARED_OBJECT_BYTES: usize = 16 << 10;

/// Length that a bookmark counts for where it is shared, about that of its JSON.
const BOOKMARK_BYTES: usize = 128;

/// Writes events in the negotiated form.
pub(super) struct EventWriter {
    pub(super) store: Store,
    pub(super) showing: ResponseOptions,
    frame: ObjectFrame,
    heads_sent: bool,
}

impl EventWriter {
    pub(super) fn new(store: Store, showing: ResponseOptions) -> Self {
        let frame = ObjectFrame::whole(&store.row);
        Self {
            store,
            showing,
            frame,
            heads_sent: false,
        }
    }

    /// Reports whether events have the objects as they are stored: in the stored version. Objects of an older schema are few.
    pub(super) fn is_as_stored(&self) -> bool {
        let form = self.showing.form;
        form.format == Format::Json
            && form.view == Representation::Object
            && self.store.row.stored.conversion.is_none()
    }

    /// Writes an event to `out`; of a large object that is sent as it is stored, what comes last goes to `rest`.
    pub(super) fn write(
        &mut self,
        event: &WatchEvent,
        out: &mut BytesMut,
        rest: &mut VecDeque<Bytes>,
    ) -> Result<(), ApiError> {
        let (kind, entry, revision) = match event {
            WatchEvent::Added(entry) => ("ADDED", entry, entry.revision),
            WatchEvent::Modified(entry) => ("MODIFIED", entry, entry.revision),
            WatchEvent::Deleted(entry, revision) => ("DELETED", entry, *revision),
            WatchEvent::Bookmark { revision, initial } => {
                let object = self.bookmark(*revision, *initial);
                return self.tree("BOOKMARK", &object, out);
            }
            WatchEvent::Failed(error) => {
                self.fail(error, out);
                return Ok(());
            }
        };
        if self.is_as_stored() && respond::is_current(&self.store.row, entry) {
            self.stored(kind, entry, revision, out, rest);
            return Ok(());
        }
        self.encoded(kind, entry, revision, out)
    }

    /// Shares an event with a client in this process: what is sent as it is stored is not encoded. Returns its length as JSON,
    /// and whether the watch ends there.
    pub(super) fn share(&mut self, event: &WatchEvent, to: &SharedEvents) -> (usize, bool) {
        if let Some((event, length)) = self.shared(event) {
            to.push(event);
            return (length, false);
        }
        let (mut out, mut rest) = (BytesMut::new(), VecDeque::new());
        let written = self.write(event, &mut out, &mut rest);
        if let Err(error) = &written {
            self.fail(error, &mut out);
        }
        let length = out.len();
        out.truncate(length.saturating_sub(1));
        to.push(SharedEvent::Line(out.freeze()));
        (length, written.is_err() || matches!(event, WatchEvent::Failed(_)))
    }

    /// The event where it is of an object as it is stored, or a bookmark, with its length as JSON.
    fn shared(&self, event: &WatchEvent) -> Option<(SharedEvent, usize)> {
        let (kind, entry, revision) = match event {
            WatchEvent::Added(entry) => ("ADDED", entry, entry.revision),
            WatchEvent::Modified(entry) => ("MODIFIED", entry, entry.revision),
            WatchEvent::Deleted(entry, revision) => ("DELETED", entry, *revision),
            WatchEvent::Bookmark { revision, initial } => {
                let event = SharedEvent::Reached {
                    revision: *revision,
                    ends_initial_events: *initial,
                };
                return Some((event, BOOKMARK_BYTES));
            }
            WatchEvent::Failed(_) => return None,
        };
        if !self.is_as_stored() || !respond::is_current(&self.store.row, entry) {
            return None;
        }
        let object = SharedObject {
            header: Arc::clone(&entry.record.header),
            revision,
            json: self.frame.slices(&entry.record, revision),
        };
        let length =
            r#"{"type":"","object":}"#.len() + 1 + kind.len() + self.frame.len(&entry.record, revision);
        let event = match event {
            WatchEvent::Deleted(..) => SharedEvent::Gone(object),
            _ => SharedEvent::Set(object),
        };
        Some((event, length))
    }

    fn stored(
        &self,
        kind: &str,
        entry: &Entry,
        revision: Revision,
        out: &mut BytesMut,
        rest: &mut VecDeque<Bytes>,
    ) {
        let bytes = self.frame.len(&entry.record, revision);
        let is_shared = bytes >= SHARED_OBJECT_BYTES;
        out.reserve(48 + if is_shared { 0 } else { bytes });
        out.put_slice(b"{\"type\":\"");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\",\"object\":");
        if is_shared {
            rest.extend(self.frame.slices(&entry.record, revision));
            rest.push_back(Bytes::from_static(b"}\n"));
        } else {
            self.frame.write(&entry.record, revision, out);
            out.put_slice(b"}\n");
        }
    }

    fn encoded(
        &mut self,
        kind: &str,
        entry: &Entry,
        revision: Revision,
        out: &mut BytesMut,
    ) -> Result<(), ApiError> {
        let form = self.showing.form;
        if let Representation::Metadata { beta } = form.view {
            return self.metadata(kind, table::partial_metadata(&entry.record, revision, beta), out);
        }
        let mut object = self.store.decode(entry)?;
        object.set_str(&["metadata", "resourceVersion"], &revision.to_string());
        self.tree(kind, &object, out)
    }

    /// An event about metadata alone, in the format of the watch.
    fn metadata(&self, kind: &str, json: Vec<u8>, out: &mut BytesMut) -> Result<(), ApiError> {
        if self.showing.form.format == Format::Protobuf {
            return crate::protobuf::watch_event(kind, &respond::metadata_tree(&json)?, out);
        }
        put_event(kind, &json, out);
        Ok(())
    }

    fn tree(&mut self, kind: &str, object: &Tree, out: &mut BytesMut) -> Result<(), ApiError> {
        let json = match self.showing.form.view {
            Representation::Metadata { beta } => {
                return self.metadata(kind, respond::metadata_of(object, beta), out);
            }
            _ if self.showing.form.format == Format::Protobuf => {
                return crate::protobuf::watch_event(kind, object, out);
            }
            Representation::Object | Representation::MetadataList { .. } => {
                let mut json = Vec::new();
                encode_json(object, &mut json);
                json
            }
            Representation::Table { beta } => {
                let meta = table::list_meta(object.str_at(&["metadata", "resourceVersion"]), "", None);
                let heads = !std::mem::replace(&mut self.heads_sent, true);
                let mut json = table::table_head(&self.store.row.columns, beta, &meta, heads).into_bytes();
                json.extend(respond::row_of(
                    &self.store.row.columns,
                    self.showing,
                    object,
                    beta,
                ));
                json.extend_from_slice(b"]}");
                json
            }
        };
        put_event(kind, &json, out);
        Ok(())
    }

    fn bookmark(&self, revision: Revision, initial: bool) -> Tree {
        let row = &self.store.row;
        let mut object = Tree::new(&row.schema, row.ty);
        object.set_str(&["kind"], &row.gvk.kind);
        object.set_str(&["apiVersion"], &row.gvk.api_version());
        object.set_str(&["metadata", "resourceVersion"], &revision.to_string());
        if initial {
            object.set_str(&["metadata", "annotations", INITIAL_END_ANNOTATION], "true");
        }
        object
    }

    pub(super) fn fail(&self, error: &impl ApiStatus, out: &mut BytesMut) {
        let json = error.status().to_json();
        if self.showing.form.format == Format::Protobuf {
            crate::protobuf::watch_error(&json, out);
        } else {
            put_event("ERROR", json.as_bytes(), out);
        }
    }
}

fn put_event(kind: &str, json: &[u8], out: &mut BytesMut) {
    out.reserve(json.len() + 48);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(json);
    out.put_slice(b"}\n");
}
