//! Measures the time per signature: `cargo run --release --example signing_speed`. The library's own CMAC is
//! measured alternately with ours, for comparison.

use std::hint::black_box;

use aws_lc_rs::cmac;
use smb_auth::sign::{SigningAlgorithm, SigningKey};

/// Header and fixed part of a READ response, in bytes.
const HEAD: usize = 80;
const KEY: [u8; 16] = [7; 16];

fn main() {
    let library = cmac::Key::new(cmac::AES_128, &KEY).expect("16 bytes are a key");
    let of_library = |segments: &[&[u8]]| {
        let mut context = cmac::Context::with_key(&library);
        segments.iter().for_each(|s| context.update(s).expect("any length"));
        black_box(context.sign().expect("initialised").as_ref().len());
    };
    let keys = [SigningAlgorithm::AesCmac, SigningAlgorithm::AesGmac, SigningAlgorithm::HmacSha256]
        .map(|a| SigningKey::new(a, &KEY));
    let ours = |key: &SigningKey, segments: &[&[u8]]| {
        black_box(key.sign(segments, 1, true, false).expect("a header"));
    };
    println!("microseconds for each message: least of 9 rounds");
    println!("{:>9} {:>14} {:>9} {:>9} {:>9}", "payload", "aws-lc's CMAC", "CMAC", "GMAC", "HMAC");
    for length in [0, 512, 4096, 8192, 65_536, 1 << 20] {
        let (head, payload) = ([1; HEAD], vec![2; length]);
        let segments = [&head[..], &payload];
        let turns = (20_000_000 / (length + 2000)).max(10) as u32;
        let mut least = [f64::MAX; 4];
        for _ in 0..9 {
            least[0] = least[0].min(timed(turns, || of_library(&segments)));
            for (key, least) in keys.iter().zip(&mut least[1..]) {
                *least = least.min(timed(turns, || ours(key, &segments)));
            }
        }
        let [library, cmac, gmac, hmac] = least;
        println!("{length:>9} {library:>14.2} {cmac:>9.2} {gmac:>9.2} {hmac:>9.2}");
    }
}

/// Returns the time of one call in microseconds.
#[expect(clippy::disallowed_methods, reason = "this program measures")]
fn timed(turns: u32, mut call: impl FnMut()) -> f64 {
    let start = std::time::Instant::now();
    (0..turns).for_each(|_| call());
    start.elapsed().as_secs_f64() * 1e6 / f64::from(turns)
}
