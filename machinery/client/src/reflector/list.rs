//! Everything there is, in pages.

use super::frames::{List, ListMeta};
use super::{Position, Reflector, Sink};
use crate::error::ClientError;
use crate::object::{RawObject, Slices, parse_header};
use bytes::Bytes;
use machinery_meta::Revision;
use std::sync::Arc;

/// Objects per page of a list.
const PAGE_LIMIT: usize = 500;
/// Pages of a list that an API extension answers.
const MAX_PAGES_OF_EXTENSION: usize = 1_000;

impl Reflector<'_> {
    /// Lists in pages and replaces the sink's content.
    pub(super) async fn list(&mut self) -> Result<(), ClientError> {
        let mut objects = Vec::new();
        let mut next = String::new();
        // A first list may come from a cache; one after a 410 must be of the newest revision.
        let first = if matches!(self.position, Position::Unknown) {
            "0"
        } else {
            ""
        };
        let mut pages = 0;
        let revision = loop {
            let mut query = self.source.query();
            query.push(("limit", PAGE_LIMIT.to_string()));
            if next.is_empty() {
                query.push(("resourceVersion", first.to_owned()));
            } else {
                query.push(("continue", next.clone()));
            }
            let (body, room) = self.client.get_answer(&self.source.path(), &query).await?;
            self.answered(room);
            let Some(sink) = self.sink.upgrade() else {
                return Ok(());
            };
            let page = self.page(&*sink, &body, &mut objects)?;
            if page.next.is_empty() {
                break page.resource_version.parse().unwrap_or(Revision::ZERO);
            }
            next = page.next.into_owned();
            pages += 1;
            self.pace(body.len()).await;
            if let Some(room) = self.room.as_ref().filter(|_| pages == MAX_PAGES_OF_EXTENSION) {
                return Err(ClientError::NoRoom(room.clone()));
            }
        };
        if let Some(sink) = self.sink.upgrade() {
            sink.replace(objects);
            self.reached(&*sink, revision);
        }
        Ok(())
    }

    fn page<'a>(
        &mut self,
        sink: &dyn Sink,
        body: &'a Bytes,
        objects: &mut Vec<RawObject>,
    ) -> Result<ListMeta<'a>, ClientError> {
        let decode = |source| ClientError::Decode {
            what: "a list".to_owned(),
            source,
        };
        let list: List<'a> = serde_json::from_slice(body).map_err(decode)?;
        for item in list.items {
            match parse_header(item.get().as_bytes()) {
                Ok((header, revision)) => {
                    let start = item.get().as_ptr() as usize - body.as_ptr() as usize;
                    let bytes = Slices(vec![body.slice(start..start + item.get().len())]);
                    objects.push(self.object(sink, Arc::new(header), revision, bytes, true)?);
                }
                Err(error) => objects.extend(self.partial(sink, item.get(), &error, true)?),
            }
        }
        Ok(list.metadata)
    }
}
