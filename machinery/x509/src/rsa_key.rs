//! Generation of RSA keys, which `ring` does not have: two random primes by FIPS 186-5, A.1.3, and the key of them in PKCS #8.
//!
//! `ring` looks at the key that comes out ([`ring::signature::RsaKeyPair::from_pkcs8`]) before it is handed out.

use crate::writer::{element, sequence, unsigned};
use num_bigint::BigUint;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::RsaKeyPair;

use crate::der::{OBJECT_IDENTIFIER, OCTET_STRING};

/// `rsaEncryption` (1.2.840.113549.1.1.1).
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const NULL: &[u8] = &[5, 0];
const EXPONENT: u32 = 65_537;
/// Random bases that a prime is tried with, as many as Go's `ProbablyPrime(20)`.
const ROUNDS: usize = 20;
/// Candidates that a smaller prime divides are passed over.
const SMALL_PRIMES_BELOW: u32 = 4_096;
/// The primes must differ in their first bits.
const DISTANCE_BITS: u64 = 100;

/// A key could not be generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The machine gives no random bytes.
    #[error("no random bytes")]
    Random,
    /// The key that came out does not hold together.
    #[error("the generated key is not accepted")]
    Rejected,
}

/// Generates a key whose modulus has so many bits (a multiple of 16, 2048 to 8192), in PKCS #8. It takes a second or two of a processor
/// at 4096 bits.
///
/// # Errors
/// The machine gives no random bytes.
pub fn generate_rsa_key(modulus_bits: u64) -> Result<Vec<u8>, KeyError> {
    let (random, small) = (SystemRandom::new(), small_primes());
    let one = BigUint::from(1_u32);
    let exponent = BigUint::from(EXPONENT);
    let bits = modulus_bits / 2;
    let (first, second) = loop {
        let first = prime(&random, &small, bits)?;
        let second = prime(&random, &small, bits)?;
        let distance = if first > second {
            &first - &second
        } else {
            &second - &first
        };
        if distance.bits() > bits - DISTANCE_BITS {
            break (first.clone().max(second.clone()), first.min(second));
        }
    };
    let modulus = &first * &second;
    let (below_first, below_second) = (&first - &one, &second - &one);
    let divisor = greatest_common_divisor(&below_first, &below_second);
    let least_multiple = &below_first * &below_second / divisor;
    let inverse = |value: &BigUint, of: &BigUint| {
        let found = value.modinv(of);
        found.ok_or(KeyError::Rejected)
    };
    let private = inverse(&exponent, &least_multiple)?;
    let parts = [
        BigUint::from(0_u32),
        modulus,
        exponent,
        private.clone(),
        first.clone(),
        second.clone(),
        &private % below_first,
        &private % below_second,
        inverse(&second, &first)?,
    ];
    let key = in_pkcs8(&parts);
    match RsaKeyPair::from_pkcs8(&key) {
        Ok(_) => Ok(key),
        Err(_) => Err(KeyError::Rejected),
    }
}

/// `PrivateKeyInfo` of an `RSAPrivateKey`.
fn in_pkcs8(parts: &[BigUint]) -> Vec<u8> {
    let parts: Vec<Vec<u8>> = parts.iter().map(|part| unsigned(&part.to_bytes_be())).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let key = element(OCTET_STRING, &[&sequence(&parts)]);
    let algorithm = sequence(&[&element(OBJECT_IDENTIFIER, &[RSA_ENCRYPTION]), NULL]);
    sequence(&[&unsigned(&[0]), &algorithm, &key])
}

/// A random prime of so many bits, the first two of them set, that is one above no multiple of the exponent.
fn prime(random: &dyn SecureRandom, small: &[u32], bits: u64) -> Result<BigUint, KeyError> {
    let exponent = BigUint::from(EXPONENT);
    loop {
        let mut candidate = random_number(random, bits)?;
        candidate.set_bit(bits - 1, true);
        candidate.set_bit(bits - 2, true);
        candidate.set_bit(0, true);
        let is_divided = |own: &u32| &candidate % *own == BigUint::ZERO;
        if small.iter().any(is_divided) {
            continue;
        }
        let fits = (&candidate - 1_u32) % &exponent != BigUint::ZERO;
        if fits && is_probably_prime(random, &candidate)? {
            return Ok(candidate);
        }
    }
}

/// The test of Miller and Rabin with random bases, the first of which is two.
fn is_probably_prime(random: &dyn SecureRandom, candidate: &BigUint) -> Result<bool, KeyError> {
    let one = BigUint::from(1_u32);
    let below = candidate - &one;
    let twos = below.trailing_zeros().unwrap_or(0);
    let odd = &below >> twos;
    for round in 0..ROUNDS {
        let base = match round {
            0 => BigUint::from(2_u32),
            _ => random_number(random, candidate.bits() - 1)? + 2_u32,
        };
        let mut power = base.modpow(&odd, candidate);
        if power == one || power == below {
            continue;
        }
        let mut is_witness = true;
        for _ in 1..twos {
            power = &power * &power % candidate;
            if power == below {
                is_witness = false;
                break;
            }
        }
        if is_witness {
            return Ok(false);
        }
    }
    Ok(true)
}

fn random_number(random: &dyn SecureRandom, bits: u64) -> Result<BigUint, KeyError> {
    let bytes = usize::try_from(bits.div_ceil(8)).map_err(|_| KeyError::Random)?;
    let mut filled = vec![0; bytes];
    random.fill(&mut filled).map_err(|_| KeyError::Random)?;
    let number = BigUint::from_bytes_be(&filled);
    filled.fill(0);
    let beyond = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(8) - bits;
    Ok(number >> beyond)
}

fn greatest_common_divisor(one: &BigUint, other: &BigUint) -> BigUint {
    let (mut one, mut other) = (one.clone(), other.clone());
    while other != BigUint::ZERO {
        let rest = &one % &other;
        (one, other) = (other, rest);
    }
    one
}

fn small_primes() -> Vec<u32> {
    let is_prime = |number: &u32| {
        let mut divisors = (3..).step_by(2).take_while(|own| own * own <= *number);
        divisors.all(|own| !number.is_multiple_of(own))
    };
    (3..SMALL_PRIMES_BELOW).step_by(2).filter(is_prime).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::KeyPair as _;
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, UnparsedPublicKey};

    #[test]
    fn rsa_key_signs_and_has_the_size_that_was_asked_for() {
        let key = generate_rsa_key(2048).unwrap();
        let pair = RsaKeyPair::from_pkcs8(&key).unwrap();
        assert_eq!(pair.public().modulus_len(), 256);
        let mut signature = vec![0; 256];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), b"text", &mut signature)
            .unwrap();
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref())
            .verify(b"text", &signature)
            .unwrap();
    }

    #[test]
    fn primes_are_told_from_others() {
        let random = SystemRandom::new();
        let is_prime = |number: u128| is_probably_prime(&random, &BigUint::from(number)).unwrap();
        assert!(is_prime((1 << 127) - 1));
        assert!(is_prime(2_147_483_647));
        // A Carmichael number, a strong pseudoprime to base 2, and a product of two primes.
        for composite in [
            561,
            2047,
            3_215_031_751,
            2_147_483_647 * 2_147_483_629,
            (1 << 127) + 1,
        ] {
            assert!(!is_prime(composite), "{composite}");
        }
    }

    #[test]
    fn small_primes_are_all_there_and_no_others() {
        let small = small_primes();
        assert_eq!(small.len(), 563, "of the 564 below 4096, two is not asked for");
        assert_eq!((&small[..4], small.last()), (&[3, 5, 7, 11][..], Some(&4093)));
    }

    #[test]
    fn random_numbers_have_no_more_bits_than_they_may() {
        let random = SystemRandom::new();
        for bits in [1, 7, 8, 9, 1023] {
            let found = (0..50).map(|_| random_number(&random, bits).unwrap().bits());
            assert!(found.max().unwrap() <= bits, "{bits}");
        }
    }
}
