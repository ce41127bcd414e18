//! Records without a sector of zeros.
//!
//! A sector that a power loss kept back reads as zeros, and by that a torn batch differs from a damaged one; so nothing
//! that is written may look like it. Text does not. A header with U+0000 in its names, or a binary value, may: such a
//! record is stuffed, each of its zeros written as two bytes that are none.

use super::wire::Malformed;

const MARK: u8 = 1;
const ZERO: u8 = 1;
const ONE: u8 = 2;
/// Distance of the bytes that a search for runs of zeros looks at.
const STRIDE: usize = 64;
/// Number of them in a row that may cover most of a sector; a sector has eight.
const SUSPICIOUS: usize = 6;

/// Reports whether there may be a run of zeros as long as a sector; true does not mean that there is one.
pub(super) fn is_needed(bytes: &[u8]) -> bool {
    let mut row = 0;
    bytes.iter().step_by(STRIDE).any(|byte| {
        row = if *byte == 0 { row + 1 } else { 0 };
        row >= SUSPICIOUS
    })
}

/// Stuffs everything from `start` on.
pub(super) fn stuff(out: &mut Vec<u8>, start: usize) {
    let plain = out.split_off(start);
    for byte in plain {
        match byte {
            0 => out.extend_from_slice(&[MARK, ZERO]),
            MARK => out.extend_from_slice(&[MARK, ONE]),
            byte => out.push(byte),
        }
    }
}

/// The bytes before they were stuffed.
pub(super) fn plain(stuffed: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::with_capacity(stuffed.len());
    let mut bytes = stuffed.iter();
    while let Some(byte) = bytes.next() {
        out.push(match *byte {
            0 => return Err(Malformed("a stuffed record has a zero")),
            MARK => match bytes.next() {
                Some(&ZERO) => 0,
                Some(&ONE) => MARK,
                _ => return Err(Malformed("a record is stuffed wrongly")),
            },
            byte => byte,
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuffing_round_trips_without_zero_bytes() {
        let all: Vec<u8> = (0..=255).chain([0; 2000]).chain([1; 9]).collect();
        let mut out = b"head".to_vec();
        out.extend_from_slice(&all);
        stuff(&mut out, 4);
        assert!(!out.contains(&0) && out.starts_with(b"head"));
        assert_eq!(plain(&out[4..]), Ok(all));
        for bad in [&[0][..], &[1], &[1, 3]] {
            assert!(plain(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn stuffing_every_sector_run_is_found_at_any_offset() {
        for start in 0..600 {
            let mut bytes = vec![b'x'; 2000];
            bytes[start..start + 490].fill(0);
            assert!(is_needed(&bytes), "{start}");
        }
        assert!(!is_needed(&[b'x'; 4000]) && !is_needed(&[0; 300]));
    }
}
