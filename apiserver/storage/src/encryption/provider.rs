//! The ciphers, with upstream's layout of bytes: AES-GCM is nonce, cipher text and tag; AES-CBC is the initial vector and
//! padded cipher text; secretbox is nonce, tag and cipher text. Nonces are random.

use aes_gcm::aead::consts::U12;
use aes_gcm::aead::rand_core::RngCore;
use aes_gcm::aead::{Aead, KeyInit, OsRng, Payload};
use aes_gcm::aes::{Aes128, Aes192, Aes256};
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use crypto_secretbox::XSalsa20Poly1305;

/// One key of one provider, ready to use.
pub(super) enum Cipher {
    Gcm128(Box<Aes128Gcm>),
    Gcm192(Box<AesGcm<Aes192, U12>>),
    Gcm256(Box<Aes256Gcm>),
    /// The length of the key says which AES it is.
    Cbc(Vec<u8>),
    Secretbox(Box<XSalsa20Poly1305>),
}

const GCM_NONCE_BYTES: usize = 12;
const BLOCK_BYTES: usize = 16;
const SECRETBOX_NONCE_BYTES: usize = 24;
const SECRETBOX_TAG_BYTES: usize = 16;
const TOO_SHORT: &str = "the stored data was shorter than the required size";
const NOT_AUTHENTIC: &str = "cipher: message authentication failed";

pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    OsRng.fill_bytes(&mut bytes);
    bytes
}

impl Cipher {
    /// `None` where the key has another length.
    pub(super) fn gcm(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Some(Self::Gcm128(Box::new(Aes128Gcm::new_from_slice(key).ok()?))),
            24 => Some(Self::Gcm192(Box::new(AesGcm::new_from_slice(key).ok()?))),
            32 => Some(Self::Gcm256(Box::new(Aes256Gcm::new_from_slice(key).ok()?))),
            _ => None,
        }
    }

    pub(super) fn cbc(key: &[u8]) -> Option<Self> {
        [16, 24, 32].contains(&key.len()).then(|| Self::Cbc(key.to_vec()))
    }

    pub(super) fn secretbox(key: &[u8]) -> Option<Self> {
        let cipher = XSalsa20Poly1305::new_from_slice(key).ok()?;
        Some(Self::Secretbox(Box::new(cipher)))
    }

    /// Encrypts, bound to `place` where the cipher can.
    pub(super) fn seal(&self, plain: &[u8], place: &[u8]) -> Vec<u8> {
        let payload = Payload {
            msg: plain,
            aad: place,
        };
        match self {
            Self::Gcm128(cipher) => with_nonce(random::<GCM_NONCE_BYTES>(), |nonce| {
                cipher.encrypt(nonce.into(), payload)
            }),
            Self::Gcm192(cipher) => with_nonce(random::<GCM_NONCE_BYTES>(), |nonce| {
                cipher.encrypt(nonce.into(), payload)
            }),
            Self::Gcm256(cipher) => with_nonce(random::<GCM_NONCE_BYTES>(), |nonce| {
                cipher.encrypt(nonce.into(), payload)
            }),
            Self::Cbc(key) => with_nonce(random::<BLOCK_BYTES>(), |vector| seal_cbc(key, vector, plain)),
            Self::Secretbox(cipher) => with_nonce(random::<SECRETBOX_NONCE_BYTES>(), |nonce| {
                cipher.encrypt(nonce.into(), plain)
            }),
        }
    }

    /// Decrypts, or says why not in upstream's words.
    pub(super) fn open(&self, stored: &[u8], place: &[u8]) -> Result<Vec<u8>, &'static str> {
        match self {
            Self::Cbc(key) => open_cbc(key, stored),
            Self::Secretbox(cipher) => {
                if stored.len() < SECRETBOX_NONCE_BYTES + SECRETBOX_TAG_BYTES {
                    return Err(TOO_SHORT);
                }
                let (nonce, sealed) = stored.split_at(SECRETBOX_NONCE_BYTES);
                let opened = cipher.decrypt(nonce.into(), sealed);
                opened.map_err(|_| "output array was not large enough for encryption")
            }
            Self::Gcm128(_) | Self::Gcm192(_) | Self::Gcm256(_) => self.open_gcm(stored, place),
        }
    }

    fn open_gcm(&self, stored: &[u8], place: &[u8]) -> Result<Vec<u8>, &'static str> {
        let (nonce, sealed) = stored.split_at_checked(GCM_NONCE_BYTES).ok_or(TOO_SHORT)?;
        let payload = Payload {
            msg: sealed,
            aad: place,
        };
        let opened = match self {
            Self::Gcm128(cipher) => cipher.decrypt(nonce.into(), payload),
            Self::Gcm192(cipher) => cipher.decrypt(nonce.into(), payload),
            Self::Gcm256(cipher) => cipher.decrypt(nonce.into(), payload),
            Self::Cbc(_) | Self::Secretbox(_) => return Err(NOT_AUTHENTIC),
        };
        opened.map_err(|_| NOT_AUTHENTIC)
    }
}

fn with_nonce<const N: usize>(
    nonce: [u8; N],
    encrypt: impl FnOnce(&[u8; N]) -> Result<Vec<u8>, aes_gcm::Error>,
) -> Vec<u8> {
    let sealed = encrypt(&nonce).expect("a value is far below the length that a cipher takes");
    [&nonce[..], &sealed].concat()
}

type Decryptor<C> = cbc::Decryptor<C>;
type Encryptor<C> = cbc::Encryptor<C>;

fn seal_cbc(key: &[u8], vector: &[u8; BLOCK_BYTES], plain: &[u8]) -> Result<Vec<u8>, aes_gcm::Error> {
    let failed = |_| aes_gcm::Error;
    Ok(match key.len() {
        16 => Encryptor::<Aes128>::new_from_slices(key, vector)
            .map_err(failed)?
            .encrypt_padded_vec_mut::<Pkcs7>(plain),
        24 => Encryptor::<Aes192>::new_from_slices(key, vector)
            .map_err(failed)?
            .encrypt_padded_vec_mut::<Pkcs7>(plain),
        _ => Encryptor::<Aes256>::new_from_slices(key, vector)
            .map_err(failed)?
            .encrypt_padded_vec_mut::<Pkcs7>(plain),
    })
}

fn open_cbc(key: &[u8], stored: &[u8]) -> Result<Vec<u8>, &'static str> {
    let (vector, sealed) = stored.split_at_checked(BLOCK_BYTES).ok_or(TOO_SHORT)?;
    if sealed.len() % BLOCK_BYTES != 0 {
        return Err("the stored data is not a multiple of the block size");
    }
    if sealed.is_empty() {
        return Err("invalid PKCS7 data (empty or not padded)");
    }
    let failed = |_| TOO_SHORT;
    let opened = match key.len() {
        16 => Decryptor::<Aes128>::new_from_slices(key, vector)
            .map_err(failed)?
            .decrypt_padded_vec_mut::<Pkcs7>(sealed),
        24 => Decryptor::<Aes192>::new_from_slices(key, vector)
            .map_err(failed)?
            .decrypt_padded_vec_mut::<Pkcs7>(sealed),
        _ => Decryptor::<Aes256>::new_from_slices(key, vector)
            .map_err(failed)?
            .decrypt_padded_vec_mut::<Pkcs7>(sealed),
    };
    opened.map_err(|_| "invalid padding on input")
}
