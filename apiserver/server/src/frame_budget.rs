//! Bounds the frames of HTTP/2 that request nothing and carry nothing: window updates, priorities, settings, pings, resets,
//! empty data. A client needs no credentials to send them, each costs the threads that serve requests some work, and no filter
//! sees them.
//!
//! A connection may send so many a second. Each request and all that it is sent permit more, for a client that reads gives
//! notice of that with window updates.

use std::time::Duration;

/// The bytes with which an HTTP/2 client begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// A frame is permitted for so many bytes that were sent; a client gives notice of two of them at most for each frame of data.
const BYTES_PER_FRAME: u64 = 64;
const FRAMES_PER_REQUEST: u64 = 8;
const FRAMES_PER_SECOND: u64 = 200;
/// Frames that are permitted at the beginning.
const FIRST_FRAMES: u64 = 1_000;
/// Unused frames that accumulate at most.
const MAX_FRAMES: u64 = 16_384;

const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// The error for too many such frames.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many control frames")]
pub(crate) struct TooManyFrames;

/// Frames that one connection may still send.
#[derive(Debug)]
pub(crate) struct FrameBudget {
    at: At,
    /// In bytes that were sent: a frame takes [`BYTES_PER_FRAME`].
    left: u64,
    /// Time up to which frames were counted.
    counted: Duration,
}

/// The position of the connection in the stream of bytes.
#[derive(Debug)]
enum At {
    /// So many bytes of the preface have come.
    Preface(usize),
    /// Another protocol is spoken.
    Other,
    Head([u8; HEAD_BYTES], usize),
    /// So many bytes of a frame are to come.
    Payload(usize),
}

impl FrameBudget {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            at: At::Preface(0),
            left: FIRST_FRAMES * BYTES_PER_FRAME,
            counted: now,
        }
    }

    /// Bytes have been sent to the client.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.permit(bytes as u64);
    }

    fn permit(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes).min(MAX_FRAMES * BYTES_PER_FRAME);
    }

    /// Bytes have come from the client.
    ///
    /// # Errors
    /// [`TooManyFrames`].
    pub(crate) fn received(&mut self, mut bytes: &[u8], now: Duration) -> Result<(), TooManyFrames> {
        let mut taken = Ok(());
        while let Some(first) = bytes.first() {
            match &mut self.at {
                At::Other => break,
                At::Preface(have) if PREFACE[*have] != *first => self.at = At::Other,
                At::Preface(have) => {
                    *have += 1;
                    bytes = &bytes[1..];
                    if *have == PREFACE.len() {
                        self.at = At::Head([0; HEAD_BYTES], 0);
                    }
                }
                At::Head(head, have) => {
                    head[*have] = *first;
                    *have += 1;
                    bytes = &bytes[1..];
                    if *have == HEAD_BYTES {
                        let head = *head;
                        taken = taken.and(self.frame(head, now));
                    }
                }
                At::Payload(left) => {
                    let skipped = (*left).min(bytes.len());
                    *left -= skipped;
                    bytes = &bytes[skipped..];
                    if *left == 0 {
                        self.at = At::Head([0; HEAD_BYTES], 0);
                    }
                }
            }
        }
        taken
    }

    /// The head of a frame is there.
    fn frame(&mut self, head: [u8; HEAD_BYTES], now: Duration) -> Result<(), TooManyFrames> {
        let [high, middle, low, kind, ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        self.at = match length {
            0 => At::Head([0; HEAD_BYTES], 0),
            _ => At::Payload(length as usize),
        };
        match kind {
            HEADERS => {
                self.permit(FRAMES_PER_REQUEST * BYTES_PER_FRAME);
                Ok(())
            }
            DATA if length > 0 => Ok(()),
            _ => self.take(now),
        }
    }

    fn take(&mut self, now: Duration) -> Result<(), TooManyFrames> {
        let passed = u64::try_from(now.saturating_sub(self.counted).as_millis()).unwrap_or(u64::MAX);
        if passed > 0 {
            self.counted = now;
            self.permit(passed.saturating_mul(FRAMES_PER_SECOND * BYTES_PER_FRAME) / 1_000);
        }
        self.left = self.left.checked_sub(BYTES_PER_FRAME).ok_or(TooManyFrames)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, u8::try_from(payload.len()).unwrap(), kind, 0, 0, 0, 0, 1];
        bytes.extend_from_slice(payload);
        bytes
    }

    /// A connection of HTTP/2 that has begun.
    fn begun() -> FrameBudget {
        let mut budget = FrameBudget::new(Duration::ZERO);
        assert_eq!(budget.received(PREFACE, Duration::ZERO), Ok(()));
        budget
    }

    /// Number of these frames that are permitted, up to a limit.
    fn taken(budget: &mut FrameBudget, kind: u8, payload: &[u8], now: Duration, limit: u64) -> u64 {
        let frame = frame(kind, payload);
        (0..limit)
            .take_while(|_| budget.received(&frame, now).is_ok())
            .count() as u64
    }

    #[test]
    fn frame_budget_takes_so_many_control_frames_at_once_and_so_many_a_second() {
        for (kind, payload) in [
            (DATA, &[][..]),
            (2, &[0; 5]),
            (3, &[0; 4]),
            (4, &[0; 6]),
            (6, &[0; 8]),
            (WINDOW_UPDATE, &[0; 4]),
            (9, &[]),
            (200, &[1]),
        ] {
            let mut budget = begun();
            let at_once = taken(&mut budget, kind, payload, Duration::ZERO, 100_000);
            assert_eq!(at_once, FIRST_FRAMES, "{kind}");
            let later = taken(&mut budget, kind, payload, Duration::from_secs(2), 100_000);
            assert_eq!(later, 2 * FRAMES_PER_SECOND, "{kind}");
        }
    }

    #[test]
    fn frame_budget_grows_with_requests_and_with_what_they_are_sent() {
        let mut budget = begun();
        let most = taken(&mut budget, WINDOW_UPDATE, &[0; 4], Duration::ZERO, 100_000);
        assert_eq!(taken(&mut budget, HEADERS, &[0x82; 30], Duration::ZERO, 10), 10);
        let more = taken(&mut budget, WINDOW_UPDATE, &[0; 4], Duration::ZERO, 100_000);
        assert_eq!((most, more), (FIRST_FRAMES, 10 * FRAMES_PER_REQUEST));
        budget.sent(64 * 300);
        let more = taken(&mut budget, WINDOW_UPDATE, &[0; 4], Duration::ZERO, 100_000);
        assert_eq!(more, 300);
        // Nothing is saved up without end.
        budget.sent(usize::MAX / 4);
        let more = taken(&mut budget, WINDOW_UPDATE, &[0; 4], Duration::ZERO, 100_000);
        assert_eq!(more, MAX_FRAMES);
        // What a body carries is free.
        assert_eq!(taken(&mut budget, DATA, b"x", Duration::ZERO, 5_000), 5_000);
    }

    #[test]
    fn frame_budget_counts_the_same_however_the_bytes_come() {
        let mut stream = PREFACE.to_vec();
        for _ in 0..=FIRST_FRAMES {
            stream.extend(frame(WINDOW_UPDATE, &[0; 4]));
        }
        for size in [1, 7, 13, 1024, stream.len()] {
            let mut budget = FrameBudget::new(Duration::ZERO);
            let mut pieces = stream[..stream.len() - 13].chunks(size);
            assert!(
                pieces.all(|piece| budget.received(piece, Duration::ZERO).is_ok()),
                "{size}"
            );
            let last = budget.received(&stream[stream.len() - 13..], Duration::ZERO);
            assert_eq!(last, Err(TooManyFrames), "{size}");
        }
    }

    #[test]
    fn frame_budget_is_nothing_to_other_protocols() {
        let mut budget = FrameBudget::new(Duration::ZERO);
        let text = b"PRINT / HTTP/1.1\r\n".repeat(10_000);
        assert_eq!(budget.received(&text, Duration::ZERO), Ok(()));
    }
}
