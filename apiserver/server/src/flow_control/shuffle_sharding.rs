//! Shuffle sharding: a flow's hand of queues, dealt from its hash. Two flows seldom have the same hand, so that a flow that
//! fills its queues leaves every other one a queue that is not full.

/// Bits of entropy of a hash.
const MAX_HASH_BITS: f64 = 60.0;
const MAX_DECK: usize = 1 << 26;
const MAX_HAND: usize = 15;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dealer {
    deck: usize,
    hand: usize,
}

impl Dealer {
    /// `None` where a hand of this size cannot be dealt fairly.
    pub(super) fn new(deck: usize, hand: usize) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "both are small")]
        let bits = ((deck as f64).log2() * hand as f64).ceil();
        let is_possible =
            deck > 0 && hand > 0 && hand <= deck.min(MAX_HAND) && deck <= MAX_DECK && bits <= MAX_HASH_BITS;
        is_possible.then_some(Self { deck, hand })
    }

    /// The cards of this hash: different, and each hand as likely as any other.
    pub(super) fn deal(self, mut hash: u64, mut card: impl FnMut(usize)) {
        let mut remainders = [0usize; MAX_HAND];
        for at in 0..self.hand {
            let left = (self.deck - at) as u64;
            #[expect(clippy::cast_possible_truncation, reason = "less than the deck")]
            let remainder = (hash % left) as usize;
            remainders[at] = remainder;
            hash /= left;
            // A remainder counts the cards that are left; those dealt before are passed over.
            let mut dealt = remainder;
            for before in remainders[..at].iter().rev() {
                dealt += usize::from(dealt >= *before);
            }
            card(dealt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn hand(dealer: Dealer, hash: u64) -> Vec<usize> {
        let mut cards = Vec::new();
        dealer.deal(hash, |card| cards.push(card));
        cards
    }

    #[test]
    fn shuffle_sharding_sizes_are_checked_as_upstreams() {
        for (deck, size) in [(64, 6), (128, 6), (512, 6), (1, 1), (16, 4), (1_024, 6)] {
            assert!(Dealer::new(deck, size).is_some(), "{deck} {size}");
        }
        for (deck, size) in [
            (0, 1),
            (1, 0),
            (3, 4),
            (128, 9),
            (1_024, 7),
            (1 << 27, 1),
            (100, 60),
        ] {
            assert!(Dealer::new(deck, size).is_none(), "{deck} {size}");
        }
    }

    #[test]
    fn shuffle_sharding_deals_different_cards() {
        // From upstream's tests: the last card, and a hand that is dealt again and again.
        assert_eq!(hand(Dealer::new(128, 6).unwrap(), 0), [0, 1, 2, 3, 4, 5]);
        let dealer = Dealer::new(128, 9 - 1).unwrap();
        for hash in (0..100_000u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let mut cards = hand(dealer, hash);
            assert!(cards.iter().all(|card| *card < 128));
            cards.sort_unstable();
            cards.dedup();
            assert_eq!(cards.len(), 8);
        }
    }

    #[test]
    fn shuffle_sharding_hands_are_equally_likely() {
        let (deck, size) = (6, 3);
        let dealer = Dealer::new(deck, size).unwrap();
        let hands = 6 * 5 * 4;
        let mut counts: BTreeMap<Vec<usize>, u32> = BTreeMap::new();
        for hash in 0..hands * 10 {
            *counts.entry(hand(dealer, hash)).or_default() += 1;
        }
        assert_eq!(counts.len() as u64, hands);
        assert!(counts.values().all(|count| *count == 10));
    }
}
