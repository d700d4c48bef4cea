"""TensorFlow's tables of characters, written by `scripts.derive_unicode_tables`.

Ranges are pairs of the gap since the last range and the length, numbers in base 36. A group of
lower-casings is the gap since the last group's end, how many, the step between them (1 or 2), and
what is added to each.
"""

MARKS = (
    "w 4 1 6 1 4 a 2 3 2 q 3 1 1 r 1 1 1 y 2 5 1 3 1 a 2 3 1 3 1 ji 1 8 1 cy 6 15 2 1f 1 1 1 2 1 "
    "2 1 18 2 k 2 1 2 d 1 1 3 22 4 2u 1 17 e 6h 3 1i f v 1 79 2 a 1 3w 1 3c 1 3d 1 au 1 c 1 a7 1 "
    "2i 1 a 2 4o f 1 1 11 4 1z 1 22 5 4 2 33 6 4r 1 h0 9 47 1 h9 1 h 1 q 2 26 3 1z 2 4d 3 1 3 11 "
    "b 8p 2 60 2 3k 7 1 6 4s 7 s 2 3h 4 1n 5 1q 2 1s 8 b 1 mk b 5 q 5 l 1 d 1 d t 2 e 2 hl 4 t 2 "
    "u5 e 27 2 v a b7 m 1r 4 w 2 l7 4 1 2 34 1 3z 1b 1 w 2 c bm 4 4 a 2 c g 1 c 1 2q 1 2i 1 mwy 2 "
    "7h 3 2r 1 a 1 37 6 ak 4 2e 2 14 3 1 1 1d 2 1b 1 2p d g 2 3g 4 3i 2 g 2 6x 1 g2a 2 5s a m z 1 "
    "e 1 1 4 1 1 2 45 3 1 6 1 4 a 2 3 2 q 3 1 1 r 1 1 1 1 7 be 3 ik 1 1c 1 bi 1 kn 1 5j 1 v 1 7k "
    "9 12 1 34 7 1u 7 2h 4 ls 1 4n 5 18 4 59 7 31 2 1 4 3i 4 1c 2 27 4 4 1 d 1 1 3 2g 6 2z 1 bl 5 "
    "a 2 1 1 2w 1 6y n 2x 3 s d 24 1 3m 3 70 1 7c 3 4b 1 2k 8 2b 3 1 5 2l a 8n 5 16 2 hx 2 22 d "
    "4v 1 vk 5 29o 2 bjv 2 3p 1 1t 5 8 1 nm 4 93 1 f5o 1 5wn 5 2xe 2"
)
LOWER = (
    "1t q 1 w 2t n 1 w 1 7 1 w x o 2 1 3 3 2 1 2 8 2 1 2 n 2 1 1 1 1 -3d 0 3 2 1 3 1 1 5u 0 2 2 1 "
    "1 1 1 5q 0 1 1 1 1 2 1 5p 0 1 1 1 2 1 1 27 0 1 1 5m 0 1 1 5n 0 1 1 1 1 1 1 5p 0 1 1 5r 1 1 1 "
    "5v 0 1 1 5t 0 1 1 1 3 1 1 5v 0 1 1 5x 1 1 1 5y 0 3 2 1 1 1 1 62 0 1 1 1 1 1 1 62 2 1 1 1 1 1 "
    "1 62 0 1 1 1 1 2 1 61 0 2 2 1 1 1 1 63 0 1 1 1 3 1 1 1 7 1 1 2 0 1 1 1 1 1 1 2 0 1 1 1 1 1 1 "
    "2 0 9 2 1 2 9 2 1 2 1 1 2 0 2 2 1 1 1 1 -2p 0 1 1 -1k 0 k 2 1 1 1 1 -3m 1 9 2 1 7 1 1 8bv 0 "
    "1 1 1 1 1 1 -4j 0 1 1 8bs 2 1 1 1 1 1 1 -5f 0 1 1 1x 0 1 1 1z 0 5 2 1 81 2 2 1 3 1 1 1 8 1 1 "
    "38 6 1 1 12 1 3 1 11 1 1 1 1s 1 2 1 1r 1 h 1 w 2 8 1 w z 1 1 8 8 c 2 1 5 1 1 -1o 2 1 1 1 1 1 "
    "1 -7 0 1 1 1 2 3 1 -3m 0 g 1 28 0 w 1 w 1c h 2 1 9 r 2 1 1 1 1 f 0 7 2 1 2 1c 2 1 2 12 1 1c "
    "289 12 1 5ls 1 1 1 5ls 5 1 1 5ls k2 28 1 tzk 0 6 1 8 1p6 17 1 -2bk 2 3 1 -2bk 8w 23 2 1 9 1 "
    "1 -5vj 1 1c 2 1 9 8 1 -8 8 6 1 -8 a 8 1 -8 8 8 1 -8 8 6 1 -8 b 4 2 -8 8 8 1 -8 o 8 1 -8 8 8 "
    "1 -8 8 8 1 -8 8 2 1 -8 0 2 1 -22 0 1 1 -9 b 4 1 -2e 0 1 1 -9 b 2 1 -8 0 2 1 -2s c 2 1 -8 0 2 "
    "1 -34 0 1 1 -7 b 2 1 -3k 0 2 1 -3i 0 1 1 -9 89 1 1 -5st 3 1 1 -6gv 0 1 1 -6di 6 1 1 s 19 g 1 "
    "g j 1 1 1 mq q 1 q 1f4 1b 1 1c 1d 1 1 1 1 1 1 -8af 0 1 1 -2xy 0 1 1 -89z 2 3 2 1 1 1 1 -8bg "
    "0 1 1 -8al 0 1 1 -8bj 0 1 1 -8bi 1 1 1 1 2 1 1 1 8 2 1 -8cf 0 1e 2 1 8 2 2 1 4 1 1 1 nyl n 2 "
    "1 j e 2 1 3r 7 2 1 3 v 2 1 a 2 2 1 1 1 1 -r9g 0 5 2 1 4 1 1 1 1 1 1 -wmg 2 2 2 1 3 a 2 1 1 1 "
    "1 -wn8 0 1 1 -wnj 0 1 1 -wnf 0 1 1 -wn5 0 1 1 -wn8 1 1 1 -wlu 0 1 1 -wmi 0 1 1 -wlx 0 1 1 ps "
    "0 6 2 1 3 1 1 1 1 1 1 -1c 0 1 1 -wn7 0 1 1 -raw 0 2 2 1 17 1 1 1 h7v q 1 w xx 14 1 14 3s 10 "
    "1 14 1ik 1f 1 1s 2ct w 1 w gw0 w 1 w o80 y 1 y"
)
CASED = (
    "1t q 6 q 1b 1 a 1 4 1 5 n 1 v 1 1k 1 3u 1 4 4 5s 1 r 5c 4 2 2 3 3 1 1 6 1 1 3 1 1 1 k 2 2a 1 "
    "3v 8 4m 1 12 9 15 26v 12 1 1 5 1 2 17 2 3 io 2e 2 6 1oi 9 7 17 2 3 1s 18 1r d 1 y 2t 7q 2 6 "
    "2 12 2 6 2 8 1 1 1 1 1 1 1 v 2 1h 1 7 1 1 3 3 1 7 3 4 2 6 4 d 5 3 1 7 79 1 4 1 2 a 1 1 3 5 6 "
    "1 1 1 1 1 1 4 1 6 4 1 2 4 5 5 4 1 h w 3 2 mp 1g 1ee 1b 1 1b 1 s 2 2v 6 4 3 2 c 12 1 1 5 1 "
    "nwy 1a i s 3q 26 1 n 3 4 1 1c 2 9 16 2 3 1 mt 17 5 9 7 28 fnk 7 c 5 sp q 6 q x1 28 2o 10 4 "
    "10 1hg 1f d 1f 2b1 1s gv4 1s k1s 2d 1 1z 1 2 2 1 2 2 2 4 1 c 1 1 1 7 1 1t 1 4 2 8 1 7 1 s 1 "
    "4 1 5 1 1 3 7 1 9g 2 p 1 p 1 v 1 p 1 v 1 p 1 v 1 p 1 v 1 p 1 8 3ec 1w 1kc q 6 q 6 q"
)
IGNORABLE = (
    "13 1 6 1 b 1 z 1 1 1 1z 1 4 1 1 1 4 1 2 2 dz 5c 4 2 4 1 9 2 1 1 6z 7 5r 1 5 1 1d 19 1 1 1 2 "
    "1 2 1 1 18 1 b 6 a b 1 1 z 1 a l g 1 2t 8 1 a 1 4 x 1 1 1 u r 2j b 1m b 4 1 2 1 o o 17 3 3b "
    "1c 1j 1 1 1 4 8 4 1 3 7 a 2 d 1 f 1 1m 1 4 4 8 1 k 2 q 1 2 2 1l 1 4 2 4 2 2 3 3 1 u 2 3 1 b "
    "2 1l 1 4 5 1 2 4 1 k 2 m 6 1 1 1m 1 2 1 1 4 8 1 7 2 b 2 u 1 1p 1 c 1 1e 1 3 1 1l 3 5 3 1 4 7 "
    "2 b 2 t 1 1m 1 2 1 6 1 5 2 k 2 s 2 1l 2 4 4 8 1 k 2 t 1 20 1 7 3 1 1 2i 1 2 7 b 9 2q 1 2 9 9 "
    "1 1 6 22 2 r 1 1 1 1 1 1j e 1 5 1 2 5 b 1 10 9 1 2u 4 1 6 1 2 2 2 p 2 4 3 g 4 d 1 2 2 6 1 f "
    "1 2m 1 gw 3 qa 3 t 3 t 2 u 2 1s 2 1 7 8 1 2 b 3 1 5 1 19 4 1g 1 1t 2 y 1 3a 3 4 2 9 1 6 3 63 "
    "2 2 1 1m 1 1 7 1 1 1 1 2 8 6 a 2 1 13 1 8 h 1r 4 1c 1 1 5 1 1 5 1 14 9 c 2 w 4 2 2 1 3 1k 1 "
    "1 2 3 1 1 3 1m 8 2 2 1s 6 2a 3 1 d 1 7 4 1 6 1 3 2 1e 1r d 1 y 2n 1 5 cd 1 1 3 b 3 d 3 d 3 d "
    "2 c 5 8 2 a 1 2 1 2 5 1d 5 1 a 1 1 d 1 g d 1f x 2a3 2 35 3 3h 1 f 1 2o w 1b 1 d1 1 10 4 3 5 "
    "5 1 2l 6 2l 3 lxy 1 yq 6 7i 1 2q 4 1 a 1 1 s 4 28 2 e y 26 1 n 3 31 2 8 1 3 1 4 1 p 2 5 1 47 "
    "2 q i d 1 12 8 p b 1a 3 1c 1 2 4 2 2 h 1 l 2 1u 6 2 2 2 2 c 1 8 1 z 1 b 1 1f 1 1 3 2 2 5 2 1 "
    "1 r 1 e 2 5 2 1 1 2s 5 9 3 3d 1 2 1 4 1 fn4 1 43 g fy g 3 1 c g y 1 2 1 4p 1 7 1 6 1 b 1 z 1 "
    "1 1 1b 1 19 2 1v 1 l 3 e9 1 6a 1 45 5 1ae 3 1 2 5 4 14 3 4 1 4l 2 fx 4 ar 2 49 b 4w 1 1i f "
    "1k 3 1d 4 2 2 2 1 f 1 1e 3 10 5 1 8 1q 1 c 2 1g 9 a 4 2 1 2n 3 2 1 1 2 6 1 4g 1 3 8 l 2 1l 2 "
    "3 1 11 7 3 5 5f 8 2 3 1 1 n 1 2c 6 1 1 4 2 1 2 6m 4 6 2 1 2 r 2 2d 8 2 1 1 2 2y 1 1 1 2 6 1 "
    "1 2t 3 2 4 1 5 77 9 1 2 74 2 1 1 4 1 40 4 2 2 4 1 w a 14 6 2 4 8 1 9 6 2 3 1a d 1 2 ba 7 1 6 "
    "1 1 2a m 2 7 1 2 1 2 3e 6 3 1 1 2 1 7 1 1 20 2 3 1 1 1 9n 2 46z 9 at3 5 1n 7 9 4 sr 1 1r h "
    "1s 2 1 2 f5k 2 1 4 43n 3 9 g 2 7 u 4 44 3 1iz 1j 4 1e 8 1 e 1 m 5 1 f 11s 7 1 h 2 7 1 2 1 5 "
    "79 e by 4 15s 7 31 8 23z 5 gx6p 1 u 2o 3k 6o"
)
