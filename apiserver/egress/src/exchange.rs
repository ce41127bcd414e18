//! One request and its whole answer, on a connection that is kept or, where there is none, on a new one.

use crate::pool::{self, Pool};
use http::{Request, response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use machinery_runtime::Runtime;
use std::pin::{Pin, pin};

pub(crate) type Connection = pool::Connection<Full<Bytes>>;

/// A request, and the bounds of its answer.
pub(crate) struct Outgoing<R> {
    pub(crate) request: Request<Full<Bytes>>,
    /// Most bytes of an answer.
    pub(crate) limit: usize,
    /// Leaves the rest of a longer answer, with its connection, instead of failing.
    pub(crate) leaves_rest: bool,
    /// Bytes up to which an answer is small.
    pub(crate) small: usize,
    /// The wait for the room of a larger one.
    pub(crate) room: R,
}

/// An answer, whatever its code, with the room that it waited for.
pub(crate) struct Answer<H> {
    pub(crate) head: response::Parts,
    pub(crate) body: Vec<u8>,
    pub(crate) _room: Option<H>,
}

/// The end of an exchange without an answer.
enum End {
    /// The connection was closed before an answer came.
    Closed,
    Failed(String),
}

impl From<hyper::Error> for End {
    fn from(error: hyper::Error) -> Self {
        match error.is_canceled() || error.is_closed() || error.is_incomplete_message() {
            true => Self::Closed,
            false => Self::Failed(error.to_string()),
        }
    }
}

/// Sends a request by a connection of the pool, or by the one that `dial` opens, and reads the answer.
///
/// # Errors
/// There is no answer; the text is Go's.
pub(crate) async fn exchange<R: Future>(
    (pool, runtime): (&Pool<Full<Bytes>>, &Runtime),
    dial: impl Future<Output = Result<Connection, String>>,
    outgoing: Outgoing<R>,
) -> Result<Answer<R::Output>, String> {
    let mut reading = Reading {
        limit: outgoing.limit,
        leaves_rest: outgoing.leaves_rest,
        small: outgoing.small,
        wait: pin!(outgoing.room),
        room: None,
    };
    let mut kept = pool.take(runtime.monotonic());
    let mut dial = pin!(dial);
    loop {
        let is_kept = kept.is_some();
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => dial.as_mut().await?,
        };
        match reading.answer(&mut connection, outgoing.request.clone()).await {
            Ok((head, body, is_whole)) => {
                if is_whole {
                    pool.keep(connection, runtime.monotonic());
                }
                let _room = reading.room;
                return Ok(Answer { head, body, _room });
            }
            // The other side closed it, while it was idle most likely. It may have read the request all the same: what this
            // server sends this way may be sent twice.
            Err(End::Closed) if is_kept => {}
            Err(End::Closed) => return Err("EOF".to_owned()),
            Err(End::Failed(why)) => return Err(why),
        }
    }
}

struct Reading<'a, R: Future> {
    limit: usize,
    leaves_rest: bool,
    small: usize,
    wait: Pin<&'a mut R>,
    room: Option<R::Output>,
}

impl<R: Future> Reading<'_, R> {
    async fn answer(
        &mut self,
        connection: &mut Connection,
        request: Request<Full<Bytes>>,
    ) -> Result<(response::Parts, Vec<u8>, bool), End> {
        let (head, body) = connection.send(request).await?.into_parts();
        let (body, is_whole) = self.body(body).await?;
        Ok((head, body, is_whole))
    }

    /// The body, and whether it is the whole.
    async fn body(&mut self, mut body: Incoming) -> Result<(Vec<u8>, bool), End> {
        let (limit, leaves_rest) = (self.limit, self.leaves_rest);
        let too_large = |read: Vec<u8>| match leaves_rest {
            true => Ok((read, false)),
            false => Err(End::Failed(format!("the answer has more than {limit} bytes"))),
        };
        let mut read = Vec::new();
        if body.size_hint().lower() > limit as u64 {
            return too_large(read);
        }
        while let Some(frame) = body.frame().await {
            let frame = frame?;
            let Some(data) = frame.data_ref() else { continue };
            let length = read.len() + data.len();
            if length > limit {
                return too_large(read);
            }
            if length > self.small && self.room.is_none() {
                self.room = Some(self.wait.as_mut().await);
            }
            read.extend_from_slice(data);
        }
        Ok((read, true))
    }
}
