//! Bytes that a client has sent and the container has not read yet, bounded by stream and by connection.
//!
//! The task that receives for a stream waits until there is room, and so stops reading the connection: the client waits by
//! TCP's flow control. SPDY's own windows would do it by stream, but no client in this field heeds them (decision 0083).

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Unread bytes of one connection.
pub(super) const CONNECTION_BYTES_MAX: usize = 1 << 20;
/// Unread bytes of one stream.
pub(super) const STREAM_BYTES_MAX: usize = 256 << 10;
/// Bytes of one piece.
pub(super) const PIECE_BYTES_MAX: usize = 32 << 10;
/// Memory of a piece beside its bytes: its place in the queue and two allocations.
const PIECE_OVERHEAD_BYTES: usize = 128;

/// Room for the unread bytes of one connection.
#[derive(Debug, Clone)]
pub(super) struct Room {
    connection: Arc<Semaphore>,
}

/// A part of the room, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    _held: [Option<OwnedSemaphorePermit>; 2],
}

/// The receiving connection's end of a stream's queue.
#[derive(Debug, Clone)]
pub(super) struct UnreadSender {
    queue: mpsc::UnboundedSender<(Bytes, Charge)>,
    stream: Arc<Semaphore>,
    connection: Arc<Semaphore>,
}

/// The reader's end of a stream's queue.
#[derive(Debug)]
pub(super) struct UnreadReceiver {
    queue: mpsc::UnboundedReceiver<(Bytes, Charge)>,
    /// Charge of the piece that was read last: it counts as unread until the reader wants the next one.
    last: Option<Charge>,
}

impl Default for Room {
    fn default() -> Self {
        let connection = Arc::new(Semaphore::new(CONNECTION_BYTES_MAX));
        Self { connection }
    }
}

impl Room {
    /// The queue of one more stream.
    pub(super) fn queue(&self) -> (UnreadSender, UnreadReceiver) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let sender = UnreadSender {
            queue: sender,
            stream: Arc::new(Semaphore::new(STREAM_BYTES_MAX)),
            connection: Arc::clone(&self.connection),
        };
        let receiver = UnreadReceiver {
            queue: receiver,
            last: None,
        };
        (sender, receiver)
    }

    /// Room for something else that a client has sent, or none if it is taken.
    pub(super) fn charge(&self, bytes: usize) -> Option<Charge> {
        let connection = Arc::clone(&self.connection);
        let held = connection.try_acquire_many_owned(permits(bytes)).ok()?;
        Some(Charge {
            _held: [Some(held), None],
        })
    }
}

impl UnreadSender {
    /// Queues bytes in pieces, waiting for room; false if the reader has gone.
    pub(super) async fn send(&self, data: &[u8]) -> bool {
        for piece in data.chunks(PIECE_BYTES_MAX) {
            let charge = tokio::select! {
                biased;
                () = self.queue.closed() => return false,
                charge = self.charge(piece.len()) => charge,
            };
            // A copy: a slice would keep the whole of what was read from the connection.
            if self.queue.send((Bytes::copy_from_slice(piece), charge)).is_err() {
                return false;
            }
        }
        true
    }

    async fn charge(&self, bytes: usize) -> Charge {
        let count = permits(bytes + PIECE_OVERHEAD_BYTES);
        let stream = Arc::clone(&self.stream).acquire_many_owned(count).await;
        let connection = Arc::clone(&self.connection).acquire_many_owned(count).await;
        // Neither is ever closed.
        Charge {
            _held: [stream.ok(), connection.ok()],
        }
    }
}

/// Invariant: far below the whole of a semaphore, so that waiting for it can end.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl UnreadReceiver {
    /// The next piece; `None` when nothing more comes.
    pub(super) async fn recv(&mut self) -> Option<Bytes> {
        self.last = None;
        let (data, charge) = self.queue.recv().await?;
        self.last = Some(charge);
        Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    /// Bytes that a queue takes before its sender has to wait.
    fn filled(sender: &UnreadSender, piece: usize) -> usize {
        let data = vec![7; piece];
        std::iter::from_fn(|| sender.send(&data).now_or_never())
            .map(|taken| if taken { piece } else { 0 })
            .sum()
    }

    #[test]
    fn unread_bytes_of_a_stream_and_of_a_connection_are_bounded() {
        let room = Room::default();
        let (sender, mut receiver) = room.queue();
        let taken = filled(&sender, 1000);
        assert!(
            taken <= STREAM_BYTES_MAX && taken > STREAM_BYTES_MAX / 2,
            "{taken}"
        );
        // A piece that is being worked on is not read yet.
        assert_eq!(receiver.recv().now_or_never().unwrap().unwrap().len(), 1000);
        assert_eq!(filled(&sender, 1000), 0);
        assert!(receiver.recv().now_or_never().unwrap().is_some());
        assert_eq!(filled(&sender, 1000), 1000);
        let others: Vec<_> = (0..8).map(|_| room.queue()).collect();
        let taken: usize = others.iter().map(|(sender, _)| filled(sender, 1000)).sum();
        assert!(taken <= CONNECTION_BYTES_MAX - STREAM_BYTES_MAX / 2, "{taken}");
        assert!(room.charge(64 << 10).is_none());
        drop((receiver, others));
        assert!(room.charge(CONNECTION_BYTES_MAX).is_some());
    }

    #[test]
    fn unread_small_pieces_count_with_what_they_take() {
        let (sender, _receiver) = Room::default().queue();
        assert!(filled(&sender, 1) <= STREAM_BYTES_MAX / PIECE_OVERHEAD_BYTES);
    }

    #[test]
    fn unread_pieces_are_small_and_none_comes_to_nobody() {
        let (sender, mut receiver) = Room::default().queue();
        assert_eq!(sender.send(&[7; 100_000]).now_or_never(), Some(true));
        let mut count = 0;
        while let Some(Some(piece)) = receiver.recv().now_or_never() {
            assert!(piece.len() <= PIECE_BYTES_MAX);
            count += piece.len();
        }
        assert_eq!(count, 100_000);
        assert_eq!(sender.send(&[7; 400_000]).now_or_never(), None);
        drop(receiver);
        assert_eq!(sender.send(&[7; 400_000]).now_or_never(), Some(false));
    }
}
