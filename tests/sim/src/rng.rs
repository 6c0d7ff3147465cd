//! A small generator whose sequence never changes between versions of a crate.

/// Numbers that one seed decides.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1))
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of them, or nothing of nothing.
    pub fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        let n = u64::try_from(all.len()).unwrap();
        (n > 0).then(|| all[usize::try_from(self.below(n)).unwrap()].clone())
    }

    /// Takes one out.
    pub fn take<T>(&mut self, all: &mut Vec<T>) -> T {
        let n = u64::try_from(all.len()).unwrap();
        let i = usize::try_from(self.below(n)).unwrap();
        all.remove(i)
    }
}
