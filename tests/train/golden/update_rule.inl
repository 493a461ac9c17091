// Written by update_rule.py from torch 1.13.0a0; do not edit.
// clang-format off
inline const std::vector<double> plain_sgd{0x1.c000000000000p-1, -0x1.0000000000000p+1, 0x1.4000000000000p-1, 0x1.7cccccccccccdp+1, 0x1.9999999999998p-4};
inline const std::vector<double> momentum_sgd{0x1.327cc34373823p-1, -0x1.b5deb04baa656p+0, 0x1.3f7206f6da4cdp-1, 0x1.7e5d7be365329p+1, 0x1.1b81a6c4163b7p-2};
inline const std::vector<double> default_adamw{0x1.fe4d87f98e4a7p-1, -0x1.ff57a25588c97p+0, 0x1.ffc1988932f75p-2, 0x1.8022782cdf7cdp+1, 0x1.176d27480754cp-9};
inline const std::vector<double> other_adamw{0x1.d809c9cde5937p-1, -0x1.ec04e17508c70p+0, 0x1.f6d2cb00d9f29p-2, 0x1.7ad27282228b4p+1, 0x1.33905d2a8ff54p-5};
