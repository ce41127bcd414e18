//! Streams of a pod at once: followed and other logs, exec, attach, port-forward. The API server bounds them by user,
//! namespace and pod and answers for that; this is the wall behind it, which counts what all API servers and others send.

use std::collections::HashMap;
use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::{HeaderValue, Response, StatusCode};
use parking_lot::Mutex;

use super::super::response::{Body, text};
use super::connects::{AllConnects, Connects, PodConnects};

/// Streams of one pod; an API server has half as many for it.
const STREAMS_OF_POD_MAX: usize = 128;

/// Open streams by pod.
#[derive(Debug, Default)]
pub(in crate::server) struct StreamSlots {
    open: Mutex<HashMap<Arc<str>, OpenStreams>>,
    connects: AllConnects,
}

/// Open streams of one pod.
#[derive(Debug)]
struct OpenStreams {
    count: usize,
    connects: PodConnects,
}

/// One of the slots of a pod, held as long as the stream lasts.
#[derive(Debug)]
pub(in crate::server) struct StreamSlot {
    of: Arc<StreamSlots>,
    pod: Arc<str>,
    connects: PodConnects,
}

impl StreamSlots {
    /// Takes a slot for one more stream of a pod, or returns the answer 429 where all are taken.
    pub(in crate::server) fn enter(
        self: &Arc<Self>,
        namespace: &str,
        pod: &str,
    ) -> Result<StreamSlot, Box<Response<Body>>> {
        let pod: Arc<str> = format!("{namespace}/{pod}").into();
        let mut open = self.open.lock();
        let streams = open.entry(Arc::clone(&pod)).or_insert_with(|| OpenStreams {
            count: 0,
            connects: self.connects.of_pod(),
        });
        if streams.count >= STREAMS_OF_POD_MAX {
            return Err(Box::new(full(&pod)));
        }
        streams.count += 1;
        Ok(StreamSlot {
            of: Arc::clone(self),
            connects: streams.connects.clone(),
            pod,
        })
    }
}

impl StreamSlot {
    /// Turns of the connects that the stream requests.
    pub(super) fn connects(&self) -> Connects {
        self.connects.clone().of_connection()
    }
}

fn full(pod: &str) -> Response<Body> {
    let message = format!("too many streams of pod \"{pod}\" are open, please try again later\n");
    let mut answer = text(StatusCode::TOO_MANY_REQUESTS, message);
    let headers = answer.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        if let Some(streams) = open.get_mut(&self.pod) {
            streams.count -= 1;
            if streams.count == 0 {
                open.remove(&self.pod);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_pod_leave_others_theirs() {
        let slots = Arc::new(StreamSlots::default());
        let mut held: Vec<StreamSlot> = std::iter::from_fn(|| slots.enter("n", "p").ok()).collect();
        assert_eq!(held.len(), STREAMS_OF_POD_MAX);
        let refused = slots.enter("n", "p").unwrap_err();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.headers()[RETRY_AFTER], "1");
        assert!(slots.enter("n", "other").is_ok() && slots.enter("m", "p").is_ok());
        held.pop();
        let again = slots.enter("n", "p");
        assert!(again.is_ok());
        drop((held, again));
        assert!(slots.open.lock().is_empty());
    }
}
