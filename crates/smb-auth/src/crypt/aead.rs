//! One interface to all ciphers: GCM from `aws-lc-rs`, CCM from RustCrypto (`aws-lc-rs` has no CCM).

use aes::{Aes128, Aes256};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ccm::Ccm;
use ccm::aead::{AeadInOut, KeyInit};
use ccm::consts::{U11, U16};

use super::{Cipher, CryptError, MessageNonce, NONCE_FIELD_LEN, TAG_LEN};

pub(super) struct AeadKey {
    pub(super) cipher: Cipher,
    pub(super) inner: AeadInner,
}

pub(super) enum AeadInner {
    Gcm(Box<LessSafeKey>),
    Ccm128(Box<Ccm<Aes128, U16, U11>>),
    Ccm256(Box<Ccm<Aes256, U16, U11>>),
}

impl AeadKey {
    pub(super) fn new(cipher: Cipher, key: &[u8]) -> Result<Self, CryptError> {
        let gcm = |algorithm| {
            let unbound = UnboundKey::new(algorithm, key).map_err(|_| CryptError::KeyLength)?;
            Ok(AeadInner::Gcm(Box::new(LessSafeKey::new(unbound))))
        };
        let inner = match cipher {
            Cipher::Aes128Gcm => gcm(&AES_128_GCM)?,
            Cipher::Aes256Gcm => gcm(&AES_256_GCM)?,
            Cipher::Aes128Ccm => {
                AeadInner::Ccm128(Box::new(Ccm::new_from_slice(key).map_err(|_| CryptError::KeyLength)?))
            }
            Cipher::Aes256Ccm => {
                AeadInner::Ccm256(Box::new(Ccm::new_from_slice(key).map_err(|_| CryptError::KeyLength)?))
            }
        };
        Ok(Self { cipher, inner })
    }

    pub(super) fn seal(
        &self,
        nonce: &[u8; NONCE_FIELD_LEN],
        aad: &[u8],
        message: &mut [u8],
    ) -> [u8; TAG_LEN] {
        let limit = "messages are below 4 GiB";
        match &self.inner {
            AeadInner::Gcm(key) => {
                let tag = key.seal_in_place_separate_tag(gcm_nonce(nonce), Aad::from(aad), message);
                let mut out = [0; TAG_LEN];
                out.copy_from_slice(tag.expect(limit).as_ref());
                out
            }
            AeadInner::Ccm128(key) => {
                key.encrypt_inout_detached(&ccm_nonce(nonce), aad, message.into()).expect(limit).into()
            }
            AeadInner::Ccm256(key) => {
                key.encrypt_inout_detached(&ccm_nonce(nonce), aad, message.into()).expect(limit).into()
            }
        }
    }

    pub(super) fn open(
        &self,
        nonce: &[u8; NONCE_FIELD_LEN],
        aad: &[u8],
        tag: &[u8],
        message: &mut [u8],
    ) -> Result<(), CryptError> {
        let tag: [u8; TAG_LEN] = tag.try_into().map_err(|_| CryptError::BadHeader)?;
        match &self.inner {
            AeadInner::Gcm(key) => key
                .open_in_place_separate_tag(gcm_nonce(nonce), Aad::from(aad), &tag, message)
                .map(|_| ())
                .map_err(|_| CryptError::Mismatch),
            AeadInner::Ccm128(key) => key
                .decrypt_inout_detached(&ccm_nonce(nonce), aad, message.into(), &tag.into())
                .map_err(|_| CryptError::Mismatch),
            AeadInner::Ccm256(key) => key
                .decrypt_inout_detached(&ccm_nonce(nonce), aad, message.into(), &tag.into())
                .map_err(|_| CryptError::Mismatch),
        }
    }
}

/// Encrypts two inputs to two outputs; the second output has room for the tag at its end.
pub(super) fn seal_scatter(
    key: &LessSafeKey,
    nonce: &MessageNonce,
    aad: &[u8],
    first: (&[u8], &mut [u8]),
    second: (&[u8], &mut [u8]),
) {
    key.seal_out_of_place_scatter(
        gcm_nonce(nonce.field()),
        Aad::from(aad),
        first.0,
        first.1,
        second.0,
        second.1,
    )
    .expect("lengths agree and are below GCM's limit");
}

pub(super) fn gcm_nonce(field: &[u8; NONCE_FIELD_LEN]) -> Nonce {
    let mut nonce = [0; 12];
    nonce.copy_from_slice(&field[..12]);
    Nonce::assume_unique_for_key(nonce)
}

fn ccm_nonce(field: &[u8; NONCE_FIELD_LEN]) -> ccm::Nonce<U11> {
    let mut nonce = [0; 11];
    nonce.copy_from_slice(&field[..11]);
    nonce.into()
}
