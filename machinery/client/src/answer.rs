//! Bodies of answers, within bounds. Those of the server are its own; those that it passes on are as an API extension likes, and
//! count in the room of the extension as long as a reader holds them.

use crate::error::ClientError;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use machinery_runtime::{AnswerRoom, HeldRoom};

/// The largest answer that is collected.
pub(crate) const MAX_BYTES: usize = 256 << 20;
/// The largest of an API extension, and its largest refusal.
pub(crate) const MAX_OF_EXTENSION: usize = 8 << 20;
const MAX_REFUSAL_OF_EXTENSION: usize = 64 << 10;
/// Bytes that are kept of a refusal's message, and of a body that is no refusal as it should be.
const MAX_MESSAGE_BYTES: usize = 4 << 10;
const MAX_QUOTED_BYTES: usize = 512;

/// Bytes in the room of an extension.
struct Kept {
    bytes: Bytes,
    _room: HeldRoom,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The room of the extension that answers, if one does.
pub(crate) fn room_of<B>(response: &Response<B>) -> Option<AnswerRoom> {
    response.extensions().get::<AnswerRoom>().cloned()
}

pub(crate) fn transport(error: kube::Error) -> ClientError {
    ClientError::Transport(Box::new(error))
}

/// The body of an answer, or the `Status` of one that is not a success.
pub(crate) async fn read<B>(response: Response<B>, limit_bytes: usize) -> Result<Bytes, ClientError>
where
    B: http_body::Body<Data = Bytes, Error = kube::Error> + Unpin,
{
    if !response.status().is_success() {
        return Err(refusal(response, limit_bytes).await);
    }
    match room_of(&response) {
        Some(room) => of_extension(response.into_body(), &room, limit_bytes.min(MAX_OF_EXTENSION)).await,
        None => collect(response.into_body(), limit_bytes, |_| Ok(())).await,
    }
}

async fn of_extension<B>(body: B, room: &AnswerRoom, limit_bytes: usize) -> Result<Bytes, ClientError>
where
    B: http_body::Body<Data = Bytes, Error = kube::Error> + Unpin,
{
    let mut held = room.hold(0).ok_or_else(|| ClientError::NoRoom(room.clone()))?;
    let bytes = collect(body, limit_bytes, |bytes| match held.resize(bytes) {
        true => Ok(()),
        false => Err(ClientError::NoRoom(room.clone())),
    });
    let bytes = bytes.await?;
    Ok(Bytes::from_owner(Kept { bytes, _room: held }))
}

/// The `Status` of an answer that is not a success; one is made up from the code where the body holds none.
pub(crate) async fn refusal<B>(response: Response<B>, limit_bytes: usize) -> ClientError
where
    B: http_body::Body<Data = Bytes, Error = kube::Error> + Unpin,
{
    let code = response.status();
    let retry_after = retry_after_seconds(response.headers());
    let limit_bytes = match room_of(&response) {
        Some(_) => limit_bytes.min(MAX_REFUSAL_OF_EXTENSION),
        None => limit_bytes,
    };
    let body = match collect(response.into_body(), limit_bytes, |_| Ok(())).await {
        Ok(body) => body,
        Err(error) => return error,
    };
    let status = serde_json::from_slice::<Status>(&body)
        .ok()
        .filter(|status| status.code.is_some());
    let mut status = status.unwrap_or_else(|| Status {
        code: Some(i32::from(code.as_u16())),
        message: Some(format!(
            "{code}: {}",
            String::from_utf8_lossy(&body[..body.len().min(MAX_QUOTED_BYTES)])
        )),
        status: Some("Failure".to_owned()),
        ..Status::default()
    });
    if retry_after.is_some() {
        let details = status.details.get_or_insert_default();
        details.retry_after_seconds = details.retry_after_seconds.or(retry_after);
    }
    cut_message(&mut status);
    ClientError::Status(Box::new(status))
}

/// Seconds of `Retry-After`; a date is none, as upstream's servers send none.
fn retry_after_seconds(headers: &HeaderMap) -> Option<i32> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

/// Cuts a text that another server wrote to what a log or a condition may hold.
pub(crate) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_MESSAGE_BYTES)]
}

/// Cuts the message of a `Status`.
pub(crate) fn cut_message(status: &mut Status) {
    if let Some(message) = &mut status.message {
        message.truncate(cut(message).len());
    }
}

/// Collects a body, and says of its memory how much it takes so far.
async fn collect<B>(
    body: B,
    limit_bytes: usize,
    mut takes: impl FnMut(usize) -> Result<(), ClientError>,
) -> Result<Bytes, ClientError>
where
    B: http_body::Body<Data = Bytes, Error = kube::Error> + Unpin,
{
    let within = |bytes: usize| match bytes > limit_bytes {
        true => Err(ClientError::TooLarge { limit_bytes }),
        false => Ok(()),
    };
    let mut pieces = body.into_data_stream();
    let Some(first) = pieces.next().await else {
        return Ok(Bytes::new());
    };
    let first = first.map_err(transport)?;
    within(first.len())?;
    takes(first.len())?;
    let Some(second) = pieces.next().await else {
        return Ok(first);
    };
    let mut all = BytesMut::from(first);
    let mut next = Some(second);
    while let Some(piece) = next {
        let piece = piece.map_err(transport)?;
        within(all.len() + piece.len())?;
        all.extend_from_slice(&piece);
        takes(all.capacity())?;
        next = pieces.next().await;
    }
    Ok(all.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::combinators::BoxBody;
    use http_body_util::{Full, StreamBody};
    use machinery_runtime::AnswerRooms;
    use std::sync::Arc;

    type Body = BoxBody<Bytes, kube::Error>;

    const MIB: usize = 1 << 20;

    fn answer(code: u16, body: Body, room: Option<&AnswerRoom>) -> Response<Body> {
        let mut response = Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
        if let Some(room) = room {
            response.extensions_mut().insert(room.clone());
        }
        response
    }

    fn pieces(number: usize) -> Body {
        let piece = || Ok(http_body::Frame::data(Bytes::from(vec![b'x'; MIB])));
        let all = std::iter::repeat_with(piece).take(number);
        BoxBody::new(StreamBody::new(futures::stream::iter(all)))
    }

    fn whole(text: String) -> Body {
        Full::new(Bytes::from(text))
            .map_err(|never| match never {})
            .boxed()
    }

    #[tokio::test]
    async fn answer_of_extension_counts_in_its_room_while_somebody_has_it() {
        let rooms = Arc::new(AnswerRooms::default());
        let room = rooms.of("a");
        let held: Vec<Bytes> = {
            let mut held = Vec::new();
            while let Ok(body) = read(answer(200, pieces(4), Some(&room)), MAX_BYTES).await {
                held.push(body);
            }
            held
        };
        assert!(
            (4..=8).contains(&held.len()),
            "of 4 MiB in 32 MiB: {}",
            held.len()
        );
        let refused = read(answer(200, pieces(4), Some(&room)), MAX_BYTES).await;
        assert!(matches!(refused, Err(ClientError::NoRoom(room)) if room.name() == "a"));
        let slice = held[0].slice(..1);
        drop(held);
        read(answer(200, pieces(4), Some(&room)), MAX_BYTES)
            .await
            .unwrap();
        drop(slice);
    }

    #[tokio::test]
    async fn answer_of_extension_has_a_bound_that_the_servers_has_not() {
        let room = Arc::new(AnswerRooms::default()).of("a");
        let refused = read(answer(200, pieces(9), Some(&room)), MAX_BYTES).await;
        assert!(
            matches!(refused, Err(ClientError::TooLarge { limit_bytes }) if limit_bytes == MAX_OF_EXTENSION)
        );
        let own = read(answer(200, pieces(9), None), MAX_BYTES).await.unwrap();
        assert_eq!(own.len(), 9 * MIB);
        let refused = read(answer(500, pieces(1), Some(&room)), MAX_BYTES).await;
        assert!(matches!(refused, Err(ClientError::TooLarge { limit_bytes }) if limit_bytes == 64 << 10));
    }

    #[tokio::test]
    async fn message_of_a_refusal_is_cut() {
        let status = |message: String| {
            whole(serde_json::json!({"kind": "Status", "code": 404, "message": message}).to_string())
        };
        let long = refusal(answer(404, status("é".repeat(40_000)), None), MAX_BYTES).await;
        assert_eq!(long.code(), 404);
        assert_eq!(long.to_string(), "é".repeat(MAX_MESSAGE_BYTES / 2));
        let brief = refusal(answer(404, status("no".to_owned()), None), MAX_BYTES).await;
        assert_eq!(brief.to_string(), "no");
    }
}
