"""ImageNet-A: 200 of ImageNet's 1000 classes; a model is evaluated on these columns only.

The folders of the data set are the 200 synsets. Sorted by name they have labels 0 to 199, and
column ``INDICES[label]`` of a 1000-way output is that class: the sorted order of the names and of
the indices is the same. Source: specs.md A.9.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sot_paddle.config import some

IMAGENET_CLASSES = 1000
_SYNSETS = """
n01498041 n01531178 n01534433 n01558993 n01580077 n01614925 n01616318 n01631663 n01641577 n01669191
n01677366 n01687978 n01694178 n01698640 n01735189 n01770081 n01770393 n01774750 n01784675 n01819313
n01820546 n01833805 n01843383 n01847000 n01855672 n01882714 n01910747 n01914609 n01924916 n01944390
n01985128 n01986214 n02007558 n02009912 n02037110 n02051845 n02077923 n02085620 n02099601 n02106550
n02106662 n02110958 n02119022 n02123394 n02127052 n02129165 n02133161 n02137549 n02165456 n02174001
n02177972 n02190166 n02206856 n02219486 n02226429 n02231487 n02233338 n02236044 n02259212 n02268443
n02279972 n02280649 n02281787 n02317335 n02325366 n02346627 n02356798 n02361337 n02410509 n02445715
n02454379 n02486410 n02492035 n02504458 n02655020 n02669723 n02672831 n02676566 n02690373 n02701002
n02730930 n02777292 n02782093 n02787622 n02793495 n02797295 n02802426 n02814860 n02815834 n02837789
n02879718 n02883205 n02895154 n02906734 n02948072 n02951358 n02980441 n02992211 n02999410 n03014705
n03026506 n03124043 n03125729 n03187595 n03196217 n03223299 n03250847 n03255030 n03291819 n03325584
n03355925 n03384352 n03388043 n03417042 n03443371 n03444034 n03445924 n03452741 n03483316 n03584829
n03590841 n03594945 n03617480 n03666591 n03670208 n03717622 n03720891 n03721384 n03724870 n03775071
n03788195 n03804744 n03837869 n03840681 n03854065 n03888257 n03891332 n03935335 n03982430 n04019541
n04033901 n04039381 n04067472 n04086273 n04099969 n04118538 n04131690 n04133789 n04141076 n04146614
n04147183 n04179913 n04208210 n04235860 n04252077 n04252225 n04254120 n04270147 n04275548 n04310018
n04317175 n04344873 n04347754 n04355338 n04366367 n04376876 n04389033 n04399382 n04442312 n04456115
n04482393 n04507155 n04509417 n04532670 n04540053 n04554684 n04562935 n04591713 n04606251 n07583066
n07695742 n07697313 n07697537 n07714990 n07718472 n07720875 n07734744 n07749582 n07753592 n07760859
n07768694 n07831146 n09229709 n09246464 n09472597 n09835506 n11879895 n12057211 n12144580 n12267677
"""
_INDICES = """
6 11 13 15 17 22 23 27 30 37 39 42 47 50 57 70 71 76 79 89 90 94 96 97 99 105 107 108 110 113 124
125 130 132 143 144 150 151 207 234 235 254 277 283 287 291 295 298 301 306 307 308 309 310 311 313
314 315 317 319 323 324 326 327 330 334 335 336 347 361 363 372 378 386 397 400 401 402 404 407 411
416 417 420 425 428 430 437 438 445 456 457 461 462 470 472 483 486 488 492 496 514 516 528 530 539
542 543 549 552 557 561 562 569 572 573 575 579 589 606 607 609 614 626 627 640 641 642 643 658 668
677 682 684 687 701 704 719 736 746 749 752 758 763 765 768 773 774 776 779 780 786 792 797 802 803
804 813 815 820 823 831 833 835 839 845 847 850 859 862 870 879 880 888 890 897 900 907 913 924 932
933 934 937 943 945 947 951 954 956 957 959 971 972 980 981 984 986 987 988
"""
SYNSETS = tuple(_SYNSETS.split())
"""The 200 folder names, sorted."""
INDICES = tuple(int(index) for index in _INDICES.split())
"""Their columns among ImageNet's 1000 classes, in the same order."""


def require_synsets(classes: Sequence[str], where: object = "ImageNet-A") -> None:
    """Make sure that class folders, in label order, are those of ImageNet-A.

    Raises:
        ValueError: a folder is missing, is not of ImageNet-A, or the order is not the sorted one.
    """
    if tuple(classes) == SYNSETS:
        return
    missing = some(sorted(set(SYNSETS) - set(classes))) or "none"
    foreign = some(sorted(set(classes) - set(SYNSETS))) or "none"
    raise ValueError(
        f"{where}: expected the 200 synset folders of ImageNet-A in sorted order, got "
        f"{len(classes)} folders; missing {missing}, foreign {foreign}: name the folder that holds "
        "n01498041 to n12267677"
    )


def require_imagenet_order(classes: Sequence[str], where: object = "the model") -> None:
    """Make sure that the 1000 known class names of a model are ImageNet's, in their order.

    Raises:
        ValueError: an output that stands for one of the 200 has another name.
    """
    for index, synset in zip(INDICES, SYNSETS, strict=True):
        if classes[index] != synset:
            raise ValueError(
                f"{where}: expected ImageNet's synsets in sorted order, with {synset} as class "
                f"{index}, got {classes[index]}; use a model trained on ImageNet-1K"
            )


def gather_scores(scores: np.ndarray) -> np.ndarray:
    """The columns (B, 200) of the classes in label order, of logits or probabilities (B, 1000)."""
    return scores[:, list(INDICES)]
