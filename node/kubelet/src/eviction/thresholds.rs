//! Levels below which something is short, as flags have them; words and arithmetic are upstream's. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use machinery_meta::Quantity;

use super::signal::Signal;

/// A level below which something is short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    /// An amount.
    Amount(Quantity),
    /// A part of all there is.
    Share(f32),
}

impl Threshold {
    /// The level where there is so much in all.
    pub fn of(self, capacity: i64) -> i64 {
        self.quantity(capacity).units()
    }

    /// The same, as it is printed.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "upstream's own arithmetic, in its own precision"
    )]
    pub fn quantity(self, capacity: i64) -> Quantity {
        match self {
            Self::Amount(amount) => amount,
            Self::Share(share) => Quantity::from_bytes((capacity as f64 * f64::from(share)) as i64),
        }
    }
}

/// The form of flags.
impl std::fmt::Display for Threshold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Amount(quantity) => write!(f, "{quantity}"),
            Self::Share(share) => write!(f, "{}%", (f64::from(*share) * 1e6).round() / 1e4),
        }
    }
}

/// Thresholds by the name of their signal.
pub type Thresholds = BTreeMap<String, Threshold>;

/// A threshold with everything that is known of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvictionThreshold {
    /// The signal that it is about.
    pub signal: Signal,
    /// The level below which it is met.
    pub level: Threshold,
    /// Time for which it has to be met before a pod is evicted: none of a hard one.
    pub grace_period: Duration,
    /// Amount that has to be free above the level before it is met no longer.
    pub minimum_reclaim: Option<Threshold>,
}

impl EvictionThreshold {
    /// Reports whether pods end at once for it.
    pub fn is_hard(&self) -> bool {
        self.grace_period.is_zero()
    }

    /// Reports whether both are the same but for what they reclaim.
    pub fn is_same(&self, other: &Self) -> bool {
        self.signal == other.signal && self.level == other.level && self.grace_period == other.grace_period
    }
}

/// Pairs of a flag, upstream's `MapStringString`.
pub fn pairs(text: &str, separator: char) -> Result<Vec<(&str, &str)>, String> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let found = part.split_once(separator);
            let found = found.ok_or_else(|| format!("malformed pair, expect string{separator}string"));
            found.map(|(name, value)| (name.trim(), value.trim()))
        })
        .collect()
}

/// The signal of a name in a flag.
pub fn known_signal(name: &str) -> Result<Signal, String> {
    Signal::named(name).ok_or_else(|| format!("unsupported eviction signal {name}"))
}

/// Reads `memory.available<1Gi,nodefs.available<10%`.
pub fn parse_thresholds(text: &str) -> Result<Thresholds, String> {
    let mut thresholds = Thresholds::new();
    for (signal, value) in pairs(text, '<')? {
        known_signal(signal)?;
        if let Some(threshold) = parse_threshold(signal, value)? {
            thresholds.insert(signal.to_owned(), threshold);
        }
    }
    Ok(thresholds)
}

/// Reads `imagefs.available=2Gi,nodefs.available=5%`.
pub fn parse_minimum_reclaim(text: &str) -> Result<Thresholds, String> {
    let mut reclaims = Thresholds::new();
    for (signal, value) in pairs(text, '=')? {
        known_signal(signal)?;
        let reclaim = match value.strip_suffix('%') {
            Some(percent) => match parse_percent(percent)? {
                share if share > 0.0 => Threshold::Share(share),
                _ => {
                    return Err(format!(
                        "eviction percentage minimum reclaim {signal} must be positive: {value}"
                    ));
                }
            },
            None => Threshold::Amount(parse_quantity(value)?),
        };
        if matches!(reclaim, Threshold::Amount(amount) if amount.is_negative()) {
            return Err(format!(
                "negative eviction minimum reclaim specified for {signal}"
            ));
        }
        reclaims.insert(signal.to_owned(), reclaim);
    }
    Ok(reclaims)
}

fn parse_percent(text: &str) -> Result<f32, String> {
    let percent: f32 = text
        .parse()
        .map_err(|_| format!("strconv.ParseFloat: parsing {text:?}: invalid syntax"))?;
    Ok(percent / 100.0)
}

fn parse_quantity(text: &str) -> Result<Quantity, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn parse_threshold(signal: &str, value: &str) -> Result<Option<Threshold>, String> {
    if let Some(percent) = value.strip_suffix('%') {
        if matches!(value, "0%" | "100%") {
            return Ok(None);
        }
        return match parse_percent(percent)? {
            share if share < 0.0 => Err(format!(
                "eviction percentage threshold {signal} must be >= 0%: {value}"
            )),
            share if share > 1.0 || share.is_nan() => Err(format!(
                "eviction percentage threshold {signal} must be <= 100%: {value}"
            )),
            share => Ok(Some(Threshold::Share(share))),
        };
    }
    let quantity = parse_quantity(value)?;
    if quantity.is_negative() || quantity.is_zero() {
        return Err(format!("eviction threshold {signal} must be positive: {value}"));
    }
    Ok(Some(Threshold::Amount(quantity)))
}
